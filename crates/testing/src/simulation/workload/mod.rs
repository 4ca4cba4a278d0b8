//! The project's own scenario: errands with random plans, signalled, cancelled and restarted from outside. It says
//! whether the engine keeps its promises; your machines have scenarios of their own.

mod errand;
mod plan;

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::{Error, InstanceId, OperationFate, SendSignal, SignalFate, Snapshot, Status};

use super::{Failed, Report, Simulation, World};
use errand::{Account, Errand};
use plan::{End, Plan};

/// One errand that was sent off, and what was done to it.
struct Sent {
    id: InstanceId,
    plan: Plan,
    /// The signals that it has got.
    stored: BTreeSet<u64>,
    /// Whether it must end cancelled.
    cancelled: bool,
}

/// The simulation of a seed, ready to run.
pub fn simulation(seed: u64) -> Simulation {
    Simulation::new(seed)
        .processes(2 + usize::try_from(seed % 2).unwrap_or(0))
        .engine(move |engine| {
            let lease = Duration::from_secs(if seed.is_multiple_of(3) { 2 } else { 8 });
            engine.queue("default").machine::<Errand>().lease(lease)
        })
}

/// Runs one seed.
///
/// # Errors
/// What the engine did that it must not do.
pub fn run(simulation: Simulation) -> Result<Report, Failed> {
    errand::forget();
    simulation.try_run(scenario)
}

async fn scenario(world: World) -> Result<(), Error> {
    let mut sent = Vec::new();
    for _ in 0..world.draw(1..=5) {
        let plan = Plan::draw(&world, 0);
        let id = world.client().insert(Errand::insert(plan.clone())).await?.id();
        sent.push(Sent {
            id,
            plan,
            stored: BTreeSet::new(),
            cancelled: false,
        });
        world.pause(Duration::from_secs(1)).await;
    }
    for _ in 0..world.draw(0..=12) {
        let which = world.draw(0..=sent.len() as u64 - 1);
        if let Some(errand) = usize::try_from(which).ok().and_then(|which| sent.get_mut(which)) {
            errand.meddle(&world).await?;
        }
        world.pause(Duration::from_secs(4)).await;
    }
    // Whoever waits for signals without an end gets them, some of them before the storm is over.
    for errand in &mut sent {
        for number in 1..=errand.plan.signals() {
            errand.signal(&world, number).await?;
        }
    }
    world.settle().await;
    for errand in &sent {
        errand.check(&world).await?;
    }
    for (id, begun) in errand::begun() {
        let grants = world.grants(id);
        if begun > grants {
            return Err(format!("{id} began {begun} times, and was given out {grants} times").into());
        }
    }
    Ok(())
}

impl Sent {
    /// Something that the outside world does.
    async fn meddle(&mut self, world: &World) -> Result<(), Error> {
        let client = world.client();
        match world.draw(0..=9) {
            0 => {
                let fate = client.cancel(self.id, "not wanted").await?;
                self.cancelled |= matches!(fate, OperationFate::Applied(_) | OperationFate::Requested(_));
            }
            1 => {
                client.retry_now(self.id).await?;
            }
            2 if self.plan.signals() > 0 => {
                client.fire_deadline(self.id).await?;
            }
            _ => {
                let number = world.draw(1..=self.plan.signals().max(1));
                self.signal(world, number).await?;
            }
        }
        Ok(())
    }

    /// Sends a signal, which counts once however often it is sent.
    async fn signal(&mut self, world: &World, number: u64) -> Result<(), Error> {
        let signal = SendSignal::new(self.id, "go", &number).deduplication_key(number.to_string());
        match world.client().send(signal).await? {
            SignalFate::Stored(_) if !self.stored.insert(number) => {
                Err(format!("{} got signal {number} twice", self.id).into())
            }
            SignalFate::Duplicate(_) if !self.stored.contains(&number) => Err(format!(
                "{} never got signal {number}, which is called a duplicate",
                self.id
            )
            .into()),
            _ => Ok(()),
        }
    }

    async fn check(&self, world: &World) -> Result<(), Error> {
        let Some(snapshot) = world.client().snapshot(self.id).await? else {
            return Err(format!("{} is gone", self.id).into());
        };
        self.check_snapshot(&snapshot)
            .map_err(|what| format!("{what}\nplan: {:?}\n{snapshot:?}", self.plan).into())
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<(), String> {
        let planned = match self.plan.end {
            _ if self.cancelled => Status::Cancelled,
            End::Done => Status::Done,
            End::Fail => Status::Failed,
            End::Cancel => Status::Cancelled,
        };
        if snapshot.status != planned {
            return Err(format!("it should be {planned}"));
        }
        if self.cancelled {
            return Ok(());
        }
        let state = snapshot.state.decode::<Errand>();
        let account = state.map_err(|error| format!("its state: {error}"))?.account;
        self.check_account(&account)
    }

    fn check_account(&self, account: &Account) -> Result<(), String> {
        if let Some(wrong) = &account.wrong {
            return Err(wrong.clone());
        }
        if account.deeds != self.plan.deeds.len() {
            return Err(format!(
                "it did {} deeds of {}",
                account.deeds,
                self.plan.deeds.len()
            ));
        }
        let used: BTreeSet<u64> = account.signals.iter().copied().collect();
        if used.len() != account.signals.len() {
            return Err("it used a signal twice".to_owned());
        }
        if !used.is_subset(&self.stored) {
            return Err("it used a signal that was not sent".to_owned());
        }
        if account.timeouts == 0 && (used.len() as u64) < self.plan.signals() {
            return Err("it went on without its signals".to_owned());
        }
        Ok(())
    }
}
