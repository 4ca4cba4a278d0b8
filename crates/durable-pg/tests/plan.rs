//! Reads a plan as `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)` gives it.

use serde_json::Value;

/// The tables that grow with the work. `workers`, `lanes` and `migrations` stay small.
const GROWING: [&str; 8] = [
    "instances",
    "ready",
    "scheduled",
    "claims",
    "finished",
    "signals",
    "signal_keys",
    "deadlines",
];

/// A plan of one statement.
pub(crate) struct Plan(Value);

impl Plan {
    pub(crate) fn new(explained: &Value) -> Self {
        Self(explained[0]["Plan"].clone())
    }

    /// Pages of tables and indexes that the statement touched, in memory or not.
    pub(crate) fn buffers(&self) -> u64 {
        let blocks = |name: &str| self.0[name].as_u64().unwrap_or(0);
        blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
    }

    /// What this plan does that grows with a table instead of with the rows that the statement is about.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        visit(&self.0, &mut |node| faults.extend(fault(node)));
        faults
    }

    /// The names of the indexes that are probed with a condition, sorted, each once.
    pub(crate) fn probed_indexes(&self) -> Vec<String> {
        let mut indexes = Vec::new();
        visit(&self.0, &mut |node| {
            if node.get("Index Cond").is_some() {
                indexes.extend(node["Index Name"].as_str().map(str::to_owned));
            }
        });
        indexes.sort();
        indexes.dedup();
        indexes
    }
}

fn visit(node: &Value, look: &mut impl FnMut(&Value)) {
    look(node);
    for child in node["Plans"].as_array().into_iter().flatten() {
        visit(child, look);
    }
}

fn fault(node: &Value) -> Option<String> {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let table = growing_table(node);
    match kind {
        "Hash Join" | "Merge Join" => {
            let mut joined = None;
            visit(node, &mut |below| {
                joined = joined.or(growing_table(below));
            });
            joined.map(|table| format!("{kind} over {table}"))
        }
        "Index Scan" | "Index Only Scan" if node.get("Index Cond").is_none() => {
            table.map(|table| format!("{kind} of {table} without a condition"))
        }
        "Seq Scan" | "Bitmap Heap Scan" | "Sample Scan" => table.map(|table| format!("{kind} on {table}")),
        _ => None,
    }
}

fn growing_table(node: &Value) -> Option<&'static str> {
    // A node that writes names its table too, and reads nothing of it by itself.
    if node["Node Type"] == "ModifyTable" {
        return None;
    }
    let name = node["Relation Name"].as_str()?;
    GROWING.into_iter().find(|table| *table == name)
}

#[test]
fn scans_and_joins_over_whole_tables_are_faults_and_probes_are_not() {
    let scan = |kind: &str, table: &str| serde_json::json!({"Node Type": kind, "Relation Name": table});
    let probe = serde_json::json!({
        "Node Type": "Index Scan", "Relation Name": "instances", "Index Name": "instances_pkey",
        "Index Cond": "(id = input.id)"
    });
    let explain = |children: Vec<Value>, kind: &str| {
        let top = serde_json::json!({"Node Type": kind, "Plans": children, "Shared Hit Blocks": 3, "Shared Read Blocks": 4});
        Plan::new(&serde_json::json!([{ "Plan": top }]))
    };
    let good = explain(
        vec![
            probe.clone(),
            scan("Tid Scan", "ready"),
            scan("Seq Scan", "workers"),
        ],
        "Nested Loop",
    );
    assert_eq!(good.faults(), Vec::<String>::new());
    assert_eq!(good.probed_indexes(), ["instances_pkey"]);
    assert_eq!(good.buffers(), 7);
    let bad = explain(
        vec![scan("Seq Scan", "instances"), scan("Index Scan", "claims")],
        "Nested Loop",
    );
    assert_eq!(
        bad.faults(),
        [
            "Seq Scan on instances",
            "Index Scan of claims without a condition"
        ]
    );
    assert_eq!(bad.probed_indexes(), Vec::<String>::new());
    assert_eq!(
        explain(vec![probe], "Hash Join").faults(),
        ["Hash Join over instances"]
    );
    assert_eq!(
        explain(vec![scan("CTE Scan", "")], "Hash Join").faults(),
        Vec::<String>::new()
    );
}
