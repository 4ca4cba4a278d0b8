//! The SQL of the store: each statement a file, rendered once for the schema that it runs in.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

/// Renders SQL that is written for the schema `durable` for another one. The name is quoted, and was checked
/// not to hold what could end a literal.
pub(crate) fn render(sql: &str, schema: &str) -> String {
    sql.replace("durable.", &format!("\"{}\".", schema.replace('"', "\"\"")))
}

macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        /// One field per file of `src/sql`.
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)+
        }

        impl Statements {
            pub(crate) fn new(schema: &str) -> Self {
                Self {
                    $($name: Statement(render(include_str!(concat!("sql/", stringify!($name), ".sql")), schema).into()),)+
                }
            }
        }
    };
}

/// One rendered statement.
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// The text, as the driver takes it: it comes from our own files, with a checked schema name.
    pub(crate) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

statements!(
    claim,
    collect,
    commit,
    create_history,
    create_lanes,
    dead_claims,
    declare_dead,
    delete_dead_workers,
    deliver,
    expire,
    fan_out,
    fencing_numbers,
    find,
    find_holders,
    find_lanes,
    heartbeat,
    insert,
    lock_claims,
    lock_instances,
    make_due,
    mark_dead,
    meet,
    neighbours,
    part,
    promote,
    read_history,
    record_migration,
    register,
    renew_secret,
    resolve_keys,
    restart,
    retire,
    retry_now,
    send,
    settlements,
    snapshots,
    standings,
    survey,
    take_back,
    take_out,
    unfinished_children,
    wake,
);
