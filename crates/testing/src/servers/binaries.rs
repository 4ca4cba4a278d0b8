//! Finds the Postgres server programs of this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Where packages put the programs: the folder, and what stands before and after the version in it.
const PLACES: [(&str, &str, &str); 5] = [
    // Debian and its descendants.
    ("/usr/lib/postgresql", "", "bin"),
    // The packages of the PostgreSQL project for Fedora and its relatives.
    ("/usr", "pgsql-", "bin"),
    // Homebrew on Apple silicon, on Intel, and on Linux.
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),
];

/// The folder that holds `postgres` and `initdb`: the one in `PATH`, else the newest version installed.
#[must_use]
pub fn find_postgres() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| holds_programs(folder))
        .or_else(|| {
            newest(
                PLACES
                    .iter()
                    .flat_map(|(folder, before, after)| versions(folder, before, after)),
            )
        })
}

fn holds_programs(folder: &Path) -> bool {
    ["postgres", "initdb"]
        .iter()
        .all(|program| folder.join(program).is_file())
}

/// Every installed version below a folder that holds the programs, with its major version.
fn versions(folder: &str, before: &str, after: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(before)?.parse().ok()?;
            Some((version, entry.path().join(after)))
        })
        .filter(|(_, programs)| holds_programs(programs))
        .collect()
}

fn newest(versions: impl Iterator<Item = (u32, PathBuf)>) -> Option<PathBuf> {
    versions
        .max_by_key(|(version, _)| *version)
        .map(|(_, programs)| programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_wins_by_number_not_by_spelling() {
        let versions = [(9, PathBuf::from("nine")), (17, PathBuf::from("seventeen"))];
        assert_eq!(newest(versions.into_iter()), Some(PathBuf::from("seventeen")));
    }

    #[test]
    fn a_folder_counts_only_if_it_holds_the_programs() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["15", "17", "latest"] {
            fs::create_dir_all(folder.path().join(version).join("bin")).unwrap();
        }
        for program in ["postgres", "initdb"] {
            fs::write(folder.path().join("15/bin").join(program), "").unwrap();
        }
        let found = versions(folder.path().to_str().unwrap(), "", "bin");
        assert_eq!(found, [(15, folder.path().join("15/bin"))]);
    }
}
