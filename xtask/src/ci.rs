//! Everything that must pass before a change is merged.

use crate::phases::{Phases, cargo, finish};
use crate::{test, tidy};

const LINT: &str = "clippy --workspace --all-targets --all-features -- -D warnings";
const DOCUMENTATION: &str = "doc --workspace --all-features --no-deps";

pub(crate) async fn run() -> anyhow::Result<()> {
    let mut phases = Phases::default();
    phases.run("format", || finish(cargo().args(["fmt", "--all", "--check"])));
    phases.run("lint", || finish(cargo().args(LINT.split(' '))));
    phases.run("tidy", tidy::run);
    test::phases(&mut phases, &test::Arguments::default()).await;
    phases.run("demo", || {
        let this = std::env::current_exe()?;
        finish(std::process::Command::new(this).args(["demo", "--orders", "300"]))
    });
    phases.run("documentation", || {
        finish(
            cargo()
                .args(DOCUMENTATION.split(' '))
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    phases.finish()
}
