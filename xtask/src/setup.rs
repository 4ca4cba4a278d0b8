//! Finds what the tests need, and installs what is missing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use durable_testing::servers::{POSTGRES_URL_VARIABLE, find_postgres};

use crate::phases::finish;

/// Debian starts a server for every version that it installs, unless a file here says otherwise.
const DEBIAN_CLUSTER_FOLDER: &str = "/etc/postgresql-common/createcluster.d";
const DEBIAN_CLUSTER_FILE: &str = "/etc/postgresql-common/createcluster.d/no-main-cluster.conf";

const ELSEWHERE: &str = "install the Postgres server programs: \
    `brew install postgresql@17` (macOS), `dnf install postgresql-server` (Fedora), \
    `pacman -S postgresql` (Arch), `apt-get install postgresql` as root (Debian); \
    or start Docker; or name a server in DURABLE_TEST_POSTGRES_URL";

/// Finds or installs everything; one line for each thing.
pub(crate) fn run() -> anyhow::Result<()> {
    postgres()?;
    redis()
}

fn redis() -> anyhow::Result<()> {
    const THING: &str = "Redis server";
    let version = || answer("redis-server", &["--version"]);
    // Tests kill their servers, so one that the environment names is not enough.
    if let Some(version) = version() {
        report(THING, &version);
        return Ok(());
    }
    if answer("apt-get", &["--version"]).is_some() {
        report(THING, "not found; installing with apt");
        update_and_install("redis-server")?;
        report(THING, &version().context("apt installed no Redis server")?);
        return Ok(());
    }
    bail!(
        "install redis-server: `brew install redis` (macOS), `dnf install redis` (Fedora), `pacman -S redis` (Arch)"
    )
}

fn report(thing: &str, state: &str) {
    println!("{thing:<18} {state}");
}

fn postgres() -> anyhow::Result<()> {
    const THING: &str = "Postgres server";
    if std::env::var(POSTGRES_URL_VARIABLE).is_ok_and(|url| !url.is_empty()) {
        report(THING, &format!("the one that {POSTGRES_URL_VARIABLE} names"));
        return Ok(());
    }
    if let Some(found) = describe_postgres() {
        report(THING, &found);
        return Ok(());
    }
    if answer("apt-get", &["--version"]).is_some() {
        report(
            THING,
            "not found; installing with apt, which takes a minute or so",
        );
        match install_with_apt() {
            Ok(()) => {
                let installed = describe_postgres().context("apt installed no Postgres programs")?;
                report(THING, &format!("installed: {installed}"));
                return Ok(());
            }
            Err(error) => report(THING, &format!("not installed: {error:#}")),
        }
    }
    if answer("docker", &["info"]).is_some() {
        report(
            THING,
            "none; tests use a container, and those that restart a server fail",
        );
        return Ok(());
    }
    bail!("{ELSEWHERE}")
}

fn describe_postgres() -> Option<String> {
    let programs = find_postgres()?;
    let postgres = programs.join("postgres");
    let version = answer(postgres.to_str()?, &["--version"])?;
    Some(format!("{version}, in {}", programs.display()))
}

fn install_with_apt() -> anyhow::Result<()> {
    if !Path::new(DEBIAN_CLUSTER_FOLDER).exists() {
        finish(as_root("mkdir")?.args(["-p", DEBIAN_CLUSTER_FOLDER]))?;
        let write = format!("echo 'create_main_cluster = false' >{DEBIAN_CLUSTER_FILE}");
        finish(as_root("sh")?.args(["-c", &write]))?;
    }
    update_and_install("postgresql")
}

fn update_and_install(package: &str) -> anyhow::Result<()> {
    // Packages that are gone from the mirror since the last update cannot be installed. A mirror that
    // does not answer need not be the one that has it, so its failure is shown and no more.
    println!("  apt-get update");
    if let Err(error) = finish(as_root("apt-get")?.args(["update", "-qq"])) {
        eprintln!("  {error:#}");
    }
    println!("  apt-get install {package}");
    finish(
        as_root("env")?
            .args([
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                "-qq",
                "-y",
            ])
            .args(["--no-install-recommends", package]),
    )
}

/// A command that runs as root, through `sudo` without asking for a password if need be.
fn as_root(program: &str) -> anyhow::Result<Command> {
    if answer("id", &["-u"]).is_some_and(|user| user == "0") {
        return Ok(Command::new(program));
    }
    if answer("sudo", &["-n", "true"]).is_none() {
        bail!("this needs root, and sudo is missing or asks for a password");
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    Ok(command)
}

/// The first line of what a program prints, if it is there and succeeds.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output
        .status
        .success()
        .then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}
