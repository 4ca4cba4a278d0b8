//! Pokes over LISTEN and NOTIFY of Postgres.

use std::fmt;

use async_trait::async_trait;
use durable_core::poke::{Link, Message, Node, PokeError, PokeReceiver, PokeSender, PokeTransport, Received};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection};

use crate::channel::Channel;

/// Carries pokes through a Postgres database: one connection listens, one notifies. Each message is one small commit of
/// its own, outside of every other transaction.
#[derive(Debug)]
pub struct PostgresPokes {
    channel: Channel,
}

impl PostgresPokes {
    /// Pokes through the database at this address, on the channel `durable_pokes`. It connects when an engine uses it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            channel: Channel::new(url.into()),
        }
    }

    /// Another channel. Several stores in one database may share one: they look once too often, no more.
    #[must_use]
    pub fn channel(self, channel: impl Into<String>) -> Self {
        Self {
            channel: self.channel.named(channel.into()),
        }
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

    async fn connect(&self, _node: &Node) -> Result<Link, PokeError> {
        let mut listener = PgListener::connect(&self.channel.url).await.map_err(failed)?;
        // A lost connection is an error, after which the runtime connects again and looks at the store.
        listener.eager_reconnect(false);
        listener.listen(&self.channel.name).await.map_err(failed)?;
        let connection = PgConnection::connect(&self.channel.url).await.map_err(failed)?;
        let channel = self.channel.name.clone();
        Ok(Link {
            sender: Box::new(Sender { connection, channel }),
            receiver: Box::new(Receiver(listener)),
            echoes: true,
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
    async fn receive(&mut self) -> Result<Received, PokeError> {
        match self.0.try_recv().await.map_err(failed)? {
            Some(notification) => Ok(Received::Message(notification.payload().as_bytes().to_vec())),
            None => Err(failed("the connection that listens was lost")),
        }
    }
}
