//! A server is really there, survives a restart with its data, and leaves nothing behind.

use std::process::Command;
use std::time::{Duration, Instant};

use durable_testing::PostgresServer;
use durable_testing::servers::{Durability, ServerError, Shutdown};
use sqlx::{Connection, Executor, PgConnection};

/// Runs in the child process of `a_killed_process_leaves_no_server_behind`.
const HOLD_A_SERVER: &str = "DURABLE_TEST_HOLD_A_SERVER";

fn is_running(process: u32) -> bool {
    let status = Command::new("ps")
        .args(["-o", "stat=", "-p", &process.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8(status.stdout).unwrap();
    status.status.success() && !state.trim().starts_with('Z')
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn setting(server: &PostgresServer, name: &str) -> String {
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::query_scalar("SELECT current_setting($1)")
        .bind(name)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_server_is_gone_after_drop_with_its_directory() {
    let server = PostgresServer::start_own(Durability::Off).await.unwrap();
    assert_eq!(setting(&server, "fsync").await, "off");
    assert_eq!(setting(&server, "max_connections").await, "300");
    let directory = setting(&server, "unix_socket_directories").await;
    assert!(std::fs::exists(&directory).unwrap());
    let process = server.process_id().unwrap();
    assert!(is_running(process));
    drop(server);
    assert!(!is_running(process));
    assert!(!std::fs::exists(&directory).unwrap());
}

#[tokio::test]
async fn data_survives_a_restart_of_either_kind() {
    let mut server = PostgresServer::start_own(Durability::Off).await.unwrap();
    let url = server.url().to_owned();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    connection
        .execute("CREATE TABLE kept (number int)")
        .await
        .unwrap();
    for (number, shutdown) in (1..).zip([Shutdown::Immediate, Shutdown::Fast, Shutdown::Immediate]) {
        sqlx::query("INSERT INTO kept VALUES ($1)")
            .bind(number)
            .execute(&mut connection)
            .await
            .unwrap();
        let before = server.process_id();
        server.restart(shutdown).await.unwrap();
        assert_ne!(server.process_id(), before);
        assert!(
            connection.execute("SELECT 1").await.is_err(),
            "the old session must be gone"
        );
        connection = PgConnection::connect(&url).await.unwrap();
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM kept")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(count, i64::from(number));
    }
}

#[tokio::test]
async fn a_stopped_server_refuses_until_it_is_started_again() {
    let mut server = PostgresServer::start_own(Durability::Off).await.unwrap();
    server.stop(Shutdown::Fast).await.unwrap();
    server.stop(Shutdown::Fast).await.unwrap();
    assert!(PgConnection::connect(server.url()).await.is_err());
    server.start_again().await.unwrap();
    server.start_again().await.unwrap();
    assert!(PgConnection::connect(server.url()).await.is_ok());
}

#[tokio::test]
async fn full_durability_flushes() {
    let server = PostgresServer::start_own(Durability::Full).await.unwrap();
    assert_eq!(setting(&server, "fsync").await, "on");
    assert_eq!(setting(&server, "full_page_writes").await, "on");
    assert_eq!(setting(&server, "shared_buffers").await, "1GB");
}

#[tokio::test]
async fn a_server_that_the_environment_names_is_not_ours_to_stop() {
    let mut server = PostgresServer::start().await.unwrap();
    if std::env::var(durable_testing::servers::POSTGRES_URL_VARIABLE).is_ok() {
        assert!(matches!(
            server.restart(Shutdown::Fast).await,
            Err(ServerError::NotOurs)
        ));
        assert_eq!(server.process_id(), None);
    } else {
        server.restart(Shutdown::Fast).await.unwrap();
    }
}

/// Not a test of its own: the process that is killed below.
#[tokio::test]
async fn hold_a_server() {
    let Ok(report) = std::env::var(HOLD_A_SERVER) else {
        return;
    };
    let server = PostgresServer::start_own(Durability::Off).await.unwrap();
    let directory = setting(&server, "unix_socket_directories").await;
    let draft = format!("{report}.draft");
    std::fs::write(&draft, format!("{} {directory}", server.process_id().unwrap())).unwrap();
    std::fs::rename(&draft, &report).unwrap();
    std::future::pending::<()>().await;
}

#[test]
fn a_killed_process_leaves_no_server_behind() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers::hold_a_server"])
        .env(HOLD_A_SERVER, &report)
        .spawn()
        .unwrap();
    wait_until("the server is up", || report.exists());
    let text = std::fs::read_to_string(&report).unwrap();
    let (process, directory) = text.split_once(' ').unwrap();
    let process = process.parse().unwrap();
    assert!(is_running(process));
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the server is gone", || !is_running(process));
    wait_until("its directory is gone", || !std::fs::exists(directory).unwrap());
}
