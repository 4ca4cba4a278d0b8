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
    bring_back,
    claim,
    collect,
    commit,
    create_history,
    create_lanes,
    dead_claims,
    declare_dead,
    delete_dead_workers,
    deliver,
    due_keys,
    expire,
    fan_out,
    fencing_numbers,
    find,
    find_holders,
    find_lanes,
    forget_keys,
    heartbeat,
    insert,
    keys,
    limits,
    lock_claims,
    lock_instances,
    lock_limits,
    look_again,
    make_due,
    mark_dead,
    meet,
    neighbours,
    part,
    pause_key,
    promote,
    read_history,
    record_migration,
    register,
    renew_secret,
    remove_limit,
    resolve_keys,
    restart,
    retire,
    retry_now,
    send,
    set_aside,
    set_limit,
    settlements,
    snapshots,
    standings,
    survey,
    take_back,
    take_out,
    unfinished_children,
    wake,
);
