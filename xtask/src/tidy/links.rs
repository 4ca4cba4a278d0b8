//! Relative links in the documentation lead to a file.

use std::path::Path;

use super::TextFile;

pub(super) fn faults(pages: &[TextFile]) -> Vec<String> {
    let mut faults = Vec::new();
    for page in pages {
        let folder = page.path.parent().unwrap_or(Path::new(""));
        for (line, target) in links(&page.text) {
            if relative_file(target).is_some_and(|file| !folder.join(file).exists()) {
                faults.push(format!(
                    "{}:{line}: `{target}` leads nowhere",
                    page.path.display()
                ));
            }
        }
    }
    faults
}

/// The targets of the links of a page, outside its code, each with its line.
fn links(page: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(page.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let targets = inline
            .chain(definition)
            .filter_map(|target| target.split_whitespace().next());
        links.extend(targets.map(|target| (number, target)));
    }
    links
}

/// The file that a link names, unless it leads out of the repository or stays on its page.
fn relative_file(target: &str) -> Option<&str> {
    let file = target.split('#').next().unwrap_or_default();
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    (!elsewhere && !file.is_empty()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let page = "[a](one.md) and ![b](two.svg \"title\")\n```\n[c](three.md)\n```\n[d]: four.md#part\n";
        assert_eq!(links(page), [(1, "one.md"), (1, "two.svg"), (5, "four.md#part")]);
    }

    #[test]
    fn only_files_of_the_repository_are_looked_for() {
        assert_eq!(relative_file("guides/start.md#first"), Some("guides/start.md"));
        assert_eq!(relative_file("#first"), None);
        assert_eq!(relative_file("https://example.com/a.md"), None);
        assert_eq!(relative_file("mailto:a@example.com"), None);
    }

    #[test]
    fn a_link_is_resolved_from_its_page() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("guides")).unwrap();
        std::fs::write(folder.path().join("contract.md"), "").unwrap();
        let text = "[a](../contract.md#x)\n[b](contract.md)\n".to_owned();
        let faults = faults(&[TextFile {
            path: folder.path().join("guides/start.md"),
            text,
        }]);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("start.md:2: `contract.md`"));
    }
}
