//! The rules of the repository that no compiler checks.
//!
//! Every check is a function from text to faults; all faults are reported at once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

mod contract;
mod links;

/// Where the sources are.
const SOURCE_FOLDERS: [&str; 3] = ["crates", "examples", "xtask"];

/// A longer file has more than one subject.
const LONGEST_FILE: usize = 600;

/// Names that say nothing about what is in a file, so that anything ends up there.
const EMPTY_NAMES: [&str; 5] = ["utils", "helpers", "common", "manager", "misc"];

/// What must not be merged. Put together here, so that this file does not contain them itself.
const LEFTOVERS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("db", "g!("),
    concat!("#[ig", "nore"),
];

/// What the engine must not know: its borders are traits.
const NOT_IN_CORE: [&str; 5] = ["sqlx", "redis", "fred", "tokio-postgres", "durable-pg"];

/// A text file of the repository.
#[derive(Debug)]
struct TextFile {
    path: PathBuf,
    text: String,
}

/// Runs every check; an error if there is any fault.
pub(crate) fn run() -> anyhow::Result<()> {
    let faults = faults()?;
    for fault in &faults {
        eprintln!("{fault}");
    }
    anyhow::ensure!(faults.is_empty(), "{} faults", faults.len());
    println!("tidy");
    Ok(())
}

fn faults() -> anyhow::Result<Vec<String>> {
    let mut sources = Vec::new();
    for folder in SOURCE_FOLDERS.map(Path::new) {
        if folder.exists() {
            read(folder, "rs", &mut sources)?;
        }
    }
    let mut pages = Vec::new();
    read(Path::new("."), "md", &mut pages)?;

    let mut faults = Vec::new();
    for source in &sources {
        let path = source.path.display();
        faults.extend(leftovers(&source.text).map(|(line, word)| format!("{path}:{line}: {word}")));
        if let Some(length) = too_long(&source.text) {
            faults.push(format!("{path}: {length} lines, more than {LONGEST_FILE}"));
        }
        if let Some(name) = empty_name(&source.path) {
            faults.push(format!("{path}: `{name}` does not say what is in it"));
        }
    }
    faults.extend(contract::faults(Path::new("docs/contract.md"), &sources));
    faults.extend(links::faults(&pages));
    let manifest = Path::new("crates/durable-core/Cargo.toml");
    let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let forbidden = forbidden_dependencies(&text);
    faults.extend(forbidden.map(|name| format!("{}: durable-core must not know {name}", manifest.display())));
    Ok(faults)
}

/// Reads the files with an extension, below a folder, in order of their names.
fn read(folder: &Path, extension: &str, files: &mut Vec<TextFile>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let path = entry.path();
        let path = path.strip_prefix(".").unwrap_or(&path).to_owned();
        if entry.file_type()?.is_dir() {
            if !hidden && name != "target" {
                read(&path, extension, files)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push(TextFile { path, text });
        }
    }
    Ok(())
}

/// The lines that hold something that must not be merged.
fn leftovers(source: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let lines = (1..).zip(source.lines());
    lines.flat_map(|(number, line)| {
        LEFTOVERS
            .into_iter()
            .filter(|&word| line.contains(word))
            .map(move |word| (number, word))
    })
}

/// The length of a file that is too long and not generated.
fn too_long(source: &str) -> Option<usize> {
    let length = source.lines().count();
    let generated = source.lines().take(3).any(|line| line.contains("@generated"));
    (length > LONGEST_FILE && !generated).then_some(length)
}

/// The part of a path that says nothing.
fn empty_name(path: &Path) -> Option<&'static str> {
    EMPTY_NAMES.into_iter().find(|&name| {
        path.with_extension("")
            .components()
            .any(|part| part.as_os_str() == name)
    })
}

/// The dependencies in a manifest that the engine must not have.
fn forbidden_dependencies(manifest: &str) -> impl Iterator<Item = &'static str> {
    let keys: Vec<&str> = manifest
        .lines()
        .map(|line| line.trim_start().trim_start_matches("[dependencies."))
        .map(|line| line.split(['.', '=', ' ', ']']).next().unwrap_or_default())
        .collect();
    NOT_IN_CORE.into_iter().filter(move |name| keys.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_found_by_line() {
        let source = format!("fn a() {{}}\n// {}: later\n    {}]\n", LEFTOVERS[0], LEFTOVERS[4]);
        assert_eq!(
            leftovers(&source).collect::<Vec<_>>(),
            [(2, LEFTOVERS[0]), (3, LEFTOVERS[4])]
        );
    }

    #[test]
    fn only_a_generated_file_may_be_long() {
        let long = "x\n".repeat(LONGEST_FILE + 1);
        assert_eq!(too_long(&long), Some(LONGEST_FILE + 1));
        assert_eq!(too_long(&format!("// @generated\n{long}")), None);
        assert_eq!(too_long("x\n"), None);
    }

    #[test]
    fn a_name_must_say_something() {
        assert_eq!(empty_name(Path::new("crates/a/src/utils.rs")), Some("utils"));
        assert_eq!(
            empty_name(Path::new("crates/a/src/common/claim.rs")),
            Some("common")
        );
        assert_eq!(empty_name(Path::new("crates/a/src/commonplace.rs")), None);
    }

    #[test]
    fn a_database_in_the_core_is_found_however_it_is_written() {
        for manifest in ["sqlx.workspace = true", "sqlx = \"1\"", "[dependencies.sqlx]"] {
            assert_eq!(forbidden_dependencies(manifest).collect::<Vec<_>>(), ["sqlx"]);
        }
        assert_eq!(forbidden_dependencies("serde = \"1\" # not sqlx").count(), 0);
    }
}
