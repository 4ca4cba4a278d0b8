//! Sets up, starts one throw-away Postgres, and runs the tests against it.

use anyhow::Context;
use durable_testing::PostgresServer;
use durable_testing::servers::POSTGRES_URL_VARIABLE;

use crate::phases::{Phases, cargo, finish};
use crate::setup;

/// What to test.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Given to `cargo test` as they are, for example `-- -p durable-core claim`.
    #[arg(last = true)]
    cargo_test: Vec<String>,
}

pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut phases = Phases::default();
    self::phases(&mut phases, arguments).await;
    phases.finish()
}

/// The phases of a test run; each runs only if the one before it made it possible.
pub(crate) async fn phases(phases: &mut Phases, arguments: &Arguments) {
    phases.run("setup", setup::run);
    // One server for all test programs: a start takes a second or two, and there are many programs.
    // It ends when it goes out of scope here, or when this process ends in any other way.
    let server = PostgresServer::start().await;
    let url = server.as_ref().map(PostgresServer::url);
    let mut cargo_test = |name, arguments: &[String]| {
        phases.run(name, || {
            let url = url.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
            finish(
                cargo()
                    .arg("test")
                    .args(arguments)
                    .env(POSTGRES_URL_VARIABLE, url),
            )
            .context("cargo test")
        });
    };
    if arguments.cargo_test.is_empty() {
        // The documentation's examples have a phase of their own, because each is a program to build.
        cargo_test(
            "test",
            &split("--workspace --all-features --lib --bins --tests --examples"),
        );
        cargo_test("documentation tests", &split("--workspace --all-features --doc"));
    } else {
        cargo_test("test", &selected(&arguments.cargo_test));
    }
}

/// The given arguments, over the whole workspace unless they name a package.
fn selected(arguments: &[String]) -> Vec<String> {
    let names_package = arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package"));
    let mut selected = split(if names_package {
        "--all-features"
    } else {
        "--workspace --all-features"
    });
    selected.extend_from_slice(arguments);
    selected
}

fn split(arguments: &str) -> Vec<String> {
    arguments.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{selected, split};

    #[test]
    fn the_whole_workspace_unless_a_package_is_named() {
        for (given, expected) in [
            ("claim", "--workspace --all-features claim"),
            ("-p durable-core claim", "--all-features -p durable-core claim"),
            ("--package=xtask", "--all-features --package=xtask"),
            ("claim -- -p", "--workspace --all-features claim -- -p"),
        ] {
            assert_eq!(selected(&split(given)), split(expected));
        }
    }
}
