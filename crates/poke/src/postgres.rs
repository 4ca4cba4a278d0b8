//! Pokes over LISTEN and NOTIFY of Postgres.

use std::fmt;

use async_trait::async_trait;
use durable_core::poke::{Link, Message, PokeError, PokeReceiver, PokeSender, PokeTransport};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection};

/// The channel, unless told otherwise.
const CHANNEL: &str = "durable_pokes";

/// Carries pokes through a Postgres database: one connection listens, one notifies. Each message is one small commit of
/// its own, outside of every other transaction.
pub struct PostgresPokes {
    url: String,
    channel: String,
}

impl PostgresPokes {
    /// Pokes through the database at this address, on the channel `durable_pokes`. It connects when an engine uses it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            channel: CHANNEL.to_owned(),
        }
    }

    /// Another channel. Several stores in one database may share one: they look once too often, no more.
    #[must_use]
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.channel = channel.into();
        self
    }
}

/// Without the password.
impl fmt::Debug for PostgresPokes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PostgresPokes")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

fn failed(message: impl fmt::Display) -> PokeError {
    PokeError {
        transport: "postgres",
        message: message.to_string(),
    }
}

#[async_trait]
impl PokeTransport for PostgresPokes {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn connect(&self) -> Result<Link, PokeError> {
        let mut listener = PgListener::connect(&self.url).await.map_err(failed)?;
        // A lost connection is an error, after which the runtime connects again and looks at the store.
        listener.eager_reconnect(false);
        listener.listen(&self.channel).await.map_err(failed)?;
        let connection = PgConnection::connect(&self.url).await.map_err(failed)?;
        let channel = self.channel.clone();
        Ok(Link {
            sender: Box::new(Sender { connection, channel }),
            receiver: Box::new(Receiver(listener)),
        })
    }
}

struct Sender {
    connection: PgConnection,
    channel: String,
}

#[async_trait]
impl PokeSender for Sender {
    async fn send(&mut self, message: &Message) -> Result<(), PokeError> {
        sqlx::query("select pg_catalog.pg_notify($1, $2)")
            .bind(&self.channel)
            .bind(message.encode())
            .execute(&mut self.connection)
            .await
            .map_err(failed)?;
        Ok(())
    }
}

struct Receiver(PgListener);

#[async_trait]
impl PokeReceiver for Receiver {
    async fn receive(&mut self) -> Result<Vec<u8>, PokeError> {
        match self.0.try_recv().await.map_err(failed)? {
            Some(notification) => Ok(notification.payload().as_bytes().to_vec()),
            None => Err(failed("the connection that listens was lost")),
        }
    }
}
