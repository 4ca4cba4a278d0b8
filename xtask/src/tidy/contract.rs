//! Every rule of the contract is named by a test, and no test names a rule that is not there.
//!
//! A rule is a list item of the contract that starts with its name, like `CORE-1`. A test names it
//! with a comment on a line of its own: `// contract: CORE-1, CORE-2`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::TextFile;

/// Stands in a rule that no release keeps yet.
const TO_COME: &str = "(to come";

/// A rule of the contract.
#[derive(Debug, PartialEq, Eq)]
struct Rule<'text> {
    name: &'text str,
    line: usize,
    to_come: bool,
}

pub(super) fn faults(contract: &Path, sources: &[TextFile]) -> Vec<String> {
    let path = contract.display();
    let text = match fs::read_to_string(contract) {
        Ok(text) => text,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let rules = rules(&text);
    let mut names = BTreeSet::new();
    let mut faults = Vec::new();
    for rule in &rules {
        if !names.insert(rule.name) {
            faults.push(format!("{path}:{}: {} stands there twice", rule.line, rule.name));
        }
    }
    let mut named = BTreeSet::new();
    for source in sources {
        for (line, name) in named_rules(&source.text) {
            named.insert(name);
            if !names.contains(name) {
                faults.push(format!(
                    "{}:{line}: no rule `{name}` in {path}",
                    source.path.display()
                ));
            }
        }
    }
    for rule in rules
        .iter()
        .filter(|rule| !rule.to_come && !named.contains(rule.name))
    {
        faults.push(format!("{path}:{}: no test names {}", rule.line, rule.name));
    }
    faults
}

/// The rules of a contract, in order.
fn rules(contract: &str) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut in_rule = false;
    for (line, text) in (1..).zip(contract.lines()) {
        let start = text.trim_start();
        if let Some(name) = item(start).and_then(rule_name) {
            rules.push(Rule {
                name,
                line,
                to_come: false,
            });
            in_rule = true;
        } else if start.is_empty() || start.starts_with('#') || item(start).is_some() {
            in_rule = false;
        }
        if in_rule && let Some(rule) = rules.last_mut() {
            rule.to_come |= text.contains(TO_COME);
        }
    }
    rules
}

/// The text of a list item or of a line that starts in bold.
fn item(line: &str) -> Option<&str> {
    let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    let bold = item.unwrap_or(line).strip_prefix("**");
    bold.or(item)
}

/// The name that a text starts with: capital letters, a hyphen, a number.
fn rule_name(text: &str) -> Option<&str> {
    let end = text
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
        .unwrap_or(text.len());
    let name = &text[..end];
    let (area, number) = name.split_once('-')?;
    let is_name = !area.is_empty()
        && area.bytes().all(|letter| letter.is_ascii_uppercase())
        && !number.is_empty()
        && number.bytes().all(|digit| digit.is_ascii_digit());
    is_name.then_some(name)
}

/// The rules that the comments of a source name, each with its line. What is no rule's name is
/// returned as it stands, so that it is reported.
fn named_rules(source: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..)
        .zip(source.lines())
        .filter_map(|(number, line)| Some((number, line.trim().strip_prefix("// contract:")?)))
        .flat_map(|(number, names)| names.split(',').map(move |name| (number, name.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, line: usize, to_come: bool) -> Rule<'_> {
        Rule { name, line, to_come }
    }

    #[test]
    fn rules_are_items_that_start_with_a_name() {
        let contract = "# Contract\n\nCORE-9 in prose.\n- CORE-1 first,\n  like CORE-8\n- **CLAIM-12** second\n\
                        * FSM-3: third\n**GATE-1** fourth\n- Core-2 is not one\n- UTF-8ish is not one\n";
        let expected = [
            rule("CORE-1", 4, false),
            rule("CLAIM-12", 6, false),
            rule("FSM-3", 7, false),
            rule("GATE-1", 8, false),
        ];
        assert_eq!(rules(contract), expected);
    }

    #[test]
    fn a_rule_to_come_says_so_anywhere_in_its_item() {
        let contract = "- CORE-1 now\n- CORE-2 later\n  (to come in 0.2)\n- CORE-3 now\n\nMore (to come).\n";
        assert_eq!(
            rules(contract),
            [
                rule("CORE-1", 1, false),
                rule("CORE-2", 2, true),
                rule("CORE-3", 4, false)
            ]
        );
    }

    #[test]
    fn comments_name_rules() {
        let source = "// contract: RULE-3, RULE-1\nfn a() {}\n    // contract: OTHER-1\nlet x = 1; // contract: OTHER-2\n";
        assert_eq!(
            named_rules(source).collect::<Vec<_>>(),
            [(1, "RULE-3"), (1, "RULE-1"), (3, "OTHER-1")]
        );
    }

    #[test]
    fn a_rule_without_a_test_and_a_test_without_a_rule_are_faults() {
        let folder = tempfile::tempdir().unwrap();
        let contract = folder.path().join("contract.md");
        fs::write(
            &contract,
            "- CORE-1 kept\n- CORE-2 not kept\n- CORE-3 (to come)\n- CORE-1 again\n",
        )
        .unwrap();
        let text = "// contract: CORE-1, NONE-1\n".to_owned();
        let faults = faults(
            &contract,
            &[TextFile {
                path: "a.rs".into(),
                text,
            }],
        );
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].ends_with(":4: CORE-1 stands there twice"));
        assert!(faults[1].starts_with("a.rs:1: no rule `NONE-1`"));
        assert!(faults[2].ends_with(":2: no test names CORE-2"));
    }
}
