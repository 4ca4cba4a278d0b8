//! What the guides say about names in the code is true.

use std::collections::BTreeSet;

const OBSERVE: &str = include_str!("../../crates/durable-core/src/observe.rs");
const OPERATION: &str = include_str!("../../docs/guides/operation.md");

/// The metrics that a text names: each between the given quotes.
fn metrics(text: &str, quote: char) -> BTreeSet<&str> {
    text.split(quote)
        .filter(|name| {
            let known = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
            name.starts_with("durable_") && name.bytes().all(known)
        })
        .filter(|name| !["durable_core", "durable_pg", "durable_testing"].contains(name))
        .collect()
}

#[test]
fn the_guide_to_operation_lists_every_metric_and_no_other() {
    // contract: OPS-6
    let in_code = metrics(OBSERVE, '"');
    assert!(in_code.len() > 10, "{in_code:?}");
    assert_eq!(in_code, metrics(OPERATION, '`'));
}
