//! A proxy between the store and Postgres that cuts connections at chosen points of the protocol.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use durable_testing::TestDatabase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before the statement reaches the server.
    Before,
    /// After the server has committed it, before its answer reaches the client.
    After,
}

#[derive(Default)]
struct Plan {
    /// A part of a statement's text, and when to cut the connection that executes it; each is used once.
    cuts: Mutex<VecDeque<(&'static str, Cut)>>,
    done: Notify,
    refusing: AtomicBool,
}

impl Plan {
    fn take(&self, text: &str) -> Option<Cut> {
        let mut cuts = self.cuts.lock().expect("whole");
        let at = cuts.iter().position(|(part, _)| text.contains(part))?;
        cuts.remove(at).map(|(_, cut)| cut)
    }
}

/// The proxy; it ends with the runtime of its test.
pub(crate) struct Proxy {
    plan: Arc<Plan>,
    url: String,
}

impl Proxy {
    pub(crate) async fn start(database: &TestDatabase) -> Self {
        let options = database.connect_options();
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let url = format!(
            "postgres://{}@127.0.0.1:{port}/{}",
            options.get_username(),
            database.name()
        );
        let plan = Arc::new(Plan::default());
        let shared = Arc::clone(&plan);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let (plan, server) = (Arc::clone(&shared), server.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(server).await?;
                    carry(client, server, &plan).await
                });
            }
        });
        Self { plan, url }
    }

    /// The address of the database, through this proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Cuts the connection that next executes a statement with this text in it.
    pub(crate) fn cut(&self, statement: &'static str, cut: Cut) {
        self.plan.cuts.lock().expect("whole").push_back((statement, cut));
    }

    /// Waits until one more cut was made.
    pub(crate) async fn was_cut(&self) {
        self.plan.done.notified().await;
    }

    /// Whether new connections are closed at once.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.plan.refusing.store(refusing, Ordering::SeqCst);
    }
}

/// Carries one connection until an end closes it, or it is cut. Both ends are closed on return.
async fn carry(client: TcpStream, server: TcpStream, plan: &Plan) -> std::io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let muted = AtomicBool::new(false);
    tokio::select! {
        requests = requests(from_client, to_server, plan, &muted) => requests,
        answers = answers(from_server, to_client, &muted) => answers,
    }?;
    Ok(())
}

/// One message with its length, and its type unless it is the first of a connection.
async fn message(from: &mut OwnedReadHalf, typed: bool) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; if typed { 5 } else { 4 }];
    from.read_exact(&mut bytes).await?;
    let length = bytes.last_chunk::<4>().expect("four bytes");
    let length = usize::try_from(u32::from_be_bytes(*length)).expect("small");
    let start = bytes.len();
    bytes.resize(start + length - 4, 0);
    from.read_exact(&mut bytes[start..]).await?;
    Ok(bytes)
}

/// The texts of a message body that end with NUL, from its start.
fn texts(body: &[u8]) -> impl Iterator<Item = String> + '_ {
    body.split(|byte| *byte == 0)
        .map(|text| String::from_utf8_lossy(text).into_owned())
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    plan: &Plan,
    muted: &AtomicBool,
) -> std::io::Result<()> {
    to.write_all(&message(&mut from, false).await?).await?;
    let mut statements: HashMap<String, String> = HashMap::new();
    let mut bound = String::new();
    loop {
        let message = message(&mut from, true).await?;
        let mut texts = texts(&message[5..]);
        match message[0] {
            b'P' => {
                let (name, text) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
                statements.insert(name, text);
            }
            b'B' => bound = texts.nth(1).unwrap_or_default(),
            _ => {}
        }
        let executed = match message[0] {
            b'E' => statements.get(&bound).cloned(),
            b'Q' => texts.next(),
            _ => None,
        };
        match executed.and_then(|text| plan.take(&text)) {
            Some(Cut::Before) => {
                plan.done.notify_one();
                return Ok(());
            }
            Some(Cut::After) => muted.store(true, Ordering::SeqCst),
            None => {}
        }
        drop(texts);
        to.write_all(&message).await?;
        if muted.load(Ordering::SeqCst) && matches!(message[0], b'S' | b'Q') {
            // The answers end the connection, once the server is ready again.
            plan.done.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, muted: &AtomicBool) -> std::io::Result<()> {
    loop {
        let message = message(&mut from, true).await?;
        if !muted.load(Ordering::SeqCst) {
            to.write_all(&message).await?;
        } else if message[0] == b'Z' {
            return Ok(());
        }
    }
}
