//! Brings a schema to the version of this crate (rule OPS-4).

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::statements::{Statements, render};

/// One frozen file of `migrations/`.
struct Migration {
    version: i32,
    name: &'static str,
    /// Whether older workers must stop.
    breaking: bool,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "foundation",
        breaking: false,
        sql: include_str!("../migrations/0001_foundation.sql"),
    },
    Migration {
        version: 2,
        name: "coordination",
        // A program of before would end a child without telling its parent.
        breaking: true,
        sql: include_str!("../migrations/0002_coordination.sql"),
    },
    Migration {
        version: 3,
        name: "limits",
        // A program of before would end a step and not free its concurrency key.
        breaking: true,
        sql: include_str!("../migrations/0003_limits.sql"),
    },
    Migration {
        version: 4,
        name: "members",
        breaking: false,
        sql: include_str!("../migrations/0004_members.sql"),
    },
];

/// Why a migration, or the check of a schema, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The schema name cannot be used.
    #[error("schema \"{schema}\" cannot be used: give 1 to 63 bytes without quotes ('), backslashes or NUL")]
    SchemaName {
        /// The name.
        schema: String,
    },
    /// The schema has not been migrated, or not far enough.
    #[error(
        "schema \"{schema}\" is at version {found}, this program needs {needed}; run durable_pg::migrate::run"
    )]
    TooOld {
        /// The schema.
        schema: String,
        /// Its version; 0 when nothing is installed.
        found: i32,
        /// What this crate needs.
        needed: i32,
    },
    /// A newer program migrated the schema in a way that this one cannot work with.
    #[error(
        "schema \"{schema}\" is at version {found}, which this program (version {known}) cannot work with; deploy the newer program"
    )]
    TooNew {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The newest that this crate knows.
        known: i32,
    },
    /// An applied migration differs from the file of this crate.
    #[error("migration {version} of schema \"{schema}\" was applied with other contents than this program's")]
    Changed {
        /// The schema.
        schema: String,
        /// The migration.
        version: i32,
    },
    /// The database.
    #[error("migrating schema \"{schema}\" failed: {source}")]
    Database {
        /// The schema.
        schema: String,
        /// Why.
        source: sqlx::Error,
    },
}

/// What the history of a schema says.
#[derive(Default)]
pub(crate) struct Installed {
    pub(crate) version: i32,
    /// Tells this installation from every other.
    pub(crate) identity: String,
}

/// The first half of the SHA-256 of these texts, as 32 hexadecimal digits: it is stored, so it must be the same
/// for every release of the compiler and of this crate.
fn checksum<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text);
    }
    let mut digits = String::with_capacity(32);
    for byte in hasher.finalize().iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Names the state that [`run`] leads to: two programs with the same fingerprint make the same schema.
#[must_use]
pub fn fingerprint() -> String {
    checksum(MIGRATIONS.iter().map(|migration| migration.sql))
}

/// All migrations as plain SQL for a new schema, for teams that run their own. It writes the history too, so that
/// a store with [`migrate(false)`](crate::PgStoreBuilder::migrate) opens what it makes. Run it in one
/// transaction; it fails, and changes nothing, where the schema is installed already.
///
/// # Errors
/// [`MigrateError::SchemaName`].
pub fn export(schema: &str) -> Result<String, MigrateError> {
    check_name(schema)?;
    let history = include_str!("sql/create_history.sql");
    let mut sql = render("CREATE SCHEMA IF NOT EXISTS durable.", schema);
    sql.truncate(sql.trim_end_matches('.').len());
    sql.push_str(&format!(";\n\n{};\n", render(history, schema).trim_end()));
    for migration in MIGRATIONS {
        let (version, name, breaking) = (migration.version, migration.name, migration.breaking);
        let record = format!(
            "INSERT INTO durable.migrations (version, name, checksum, breaking)\n\
             VALUES ({version}, '{name}', '{}', {breaking});\n",
            checksum([migration.sql])
        );
        for part in [migration.sql, &record] {
            sql.push_str(&format!("\n{}", render(part, schema)));
        }
    }
    Ok(sql)
}

pub(crate) fn check_name(schema: &str) -> Result<(), MigrateError> {
    let bad = schema.is_empty() || schema.len() > 63 || schema.contains(['\'', '\\', '\0']);
    if bad {
        Err(MigrateError::SchemaName {
            schema: schema.to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Migrates a schema, and creates it if need be. Any number of nodes may do so at once: one does the work,
/// the others wait for it. The lock is that of one transaction; engines go on working meanwhile.
///
/// # Errors
/// [`MigrateError`]; then nothing was changed.
pub async fn run(connection: &mut PgConnection, schema: &str) -> Result<(), MigrateError> {
    check_name(schema)?;
    let failed = |source| MigrateError::Database {
        schema: schema.to_owned(),
        source,
    };
    let statements = Statements::new(schema);
    let mut transaction = connection.begin().await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('durable migration of ' || $1, 0))")
        .bind(schema)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    let create = render("CREATE SCHEMA IF NOT EXISTS durable.", schema);
    sqlx::query(AssertSqlSafe(create.trim_end_matches('.').to_owned()))
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    sqlx::query(statements.create_history.text())
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    let installed = read(&mut transaction, schema, &statements).await?;
    for migration in MIGRATIONS
        .iter()
        .filter(|migration| migration.version > installed.version)
    {
        sqlx::raw_sql(AssertSqlSafe(render(migration.sql, schema)))
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        sqlx::query(statements.record_migration.text())
            .bind(migration.version)
            .bind(migration.name)
            .bind(checksum([migration.sql]))
            .bind(migration.breaking)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

/// Reads and checks the history; refuses one that this crate cannot work with.
async fn read(
    connection: &mut PgConnection,
    schema: &str,
    statements: &Statements,
) -> Result<Installed, MigrateError> {
    let failed = |source| MigrateError::Database {
        schema: schema.to_owned(),
        source,
    };
    let rows = sqlx::query(statements.read_history.text())
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let mut installed = Installed::default();
    for row in rows {
        let version: i32 = row.try_get("version").map_err(failed)?;
        let breaking: bool = row.try_get("breaking").map_err(failed)?;
        let applied: String = row.try_get("checksum").map_err(failed)?;
        if version > known && breaking {
            return Err(MigrateError::TooNew {
                schema: schema.to_owned(),
                found: version,
                known,
            });
        }
        let file = MIGRATIONS.iter().find(|migration| migration.version == version);
        if file.is_some_and(|migration| checksum([migration.sql]) != applied) {
            return Err(MigrateError::Changed {
                schema: schema.to_owned(),
                version,
            });
        }
        if installed.version == 0 {
            installed.identity = row.try_get("installation").map_err(failed)?;
        }
        installed.version = version;
    }
    Ok(installed)
}

/// Checks that a schema is one that this crate can work with.
pub(crate) async fn check(
    connection: &mut PgConnection,
    schema: &str,
    statements: &Statements,
) -> Result<Installed, MigrateError> {
    let needed = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let too_old = |found| MigrateError::TooOld {
        schema: schema.to_owned(),
        found,
        needed,
    };
    match read(connection, schema, statements).await {
        Ok(installed) if installed.version < needed => Err(too_old(installed.version)),
        Err(MigrateError::Database {
            source: sqlx::Error::Database(error),
            ..
        }) if matches!(error.code().as_deref(), Some("42P01" | "3F000")) => Err(too_old(0)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn a_checksum_is_the_same_for_ever() {
        // The published test value of SHA-256 for "abc", cut in half.
        assert_eq!(checksum(["abc"]), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(checksum(["a", "bc"]), checksum(["abc"]));
        assert_ne!(checksum(["abd"]), checksum(["abc"]));
    }
}
