//! Everything that must pass before a change is merged.

use durable_testing::servers::POSTGRES_URL_VARIABLE;

use crate::phases::{Phases, cargo, finish};
use crate::{demo, test, tidy};

const LINT: &str = "clippy --workspace --all-targets --all-features -- -D warnings";
const DOCUMENTATION: &str = "doc --workspace --all-features --no-deps";

pub(crate) async fn run() -> anyhow::Result<()> {
    let mut phases = Phases::default();
    phases.run("format", || finish(cargo().args(["fmt", "--all", "--check"])));
    phases.run("lint", || finish(cargo().args(LINT.split(' '))));
    phases.run("tidy", tidy::run);
    test::phases(&mut phases, &test::Arguments::default()).await;
    // On the server that the tests use too, if one is named.
    let url = std::env::var(POSTGRES_URL_VARIABLE);
    let short = demo::Arguments {
        orders: 300,
        seed: 1,
        database_url: url.ok().filter(|url| !url.is_empty()),
    };
    phases.wait_for("demo", demo::run(&short)).await;
    phases.run("documentation", || {
        finish(
            cargo()
                .args(DOCUMENTATION.split(' '))
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    phases.finish()
}
