//! The payments of the orders: most come, some come twice, some never.

use durable_core::{Client, SendSignal, Target};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Of 100 orders, so many are never paid.
const UNPAID_PERCENT: u32 = 10;
/// Of 100 payments, so many are reported twice.
const TWICE_PERCENT: u32 = 20;

/// How an order is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payment {
    Never,
    Once,
    Twice,
}

impl Payment {
    /// What chance decides for an order: the same again for the same seed.
    pub(super) fn of(number: u32, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(31) ^ u64::from(number));
        if random.random_ratio(UNPAID_PERCENT, 100) {
            Self::Never
        } else if random.random_ratio(TWICE_PERCENT, 100) {
            Self::Twice
        } else {
            Self::Once
        }
    }

    const fn times(self) -> usize {
        match self {
            Self::Never => 0,
            Self::Once => 1,
            Self::Twice => 2,
        }
    }
}

/// The correlation key of an order.
pub(super) fn order_key(number: u32) -> String {
    format!("order-{number}")
}

/// Reports the payments of these orders, each as often as chance decides, as a payment service would.
pub(super) async fn send(client: &Client, numbers: &[u32], seed: u64) -> anyhow::Result<()> {
    for nth in 1..=2 {
        let mut signals = Vec::new();
        for &number in numbers {
            if Payment::of(number, seed).times() >= nth {
                let signal = SendSignal::new(Target::key(order_key(number))?, "paid", &number);
                signals.push(signal.deduplication_key(format!("payment-{number}")));
            }
        }
        client.signal_all(signals).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Payment;

    #[test]
    fn most_orders_are_paid_and_some_twice() {
        let count = |payment| {
            (0..1000)
                .filter(|number| Payment::of(*number, 1) == payment)
                .count()
        };
        assert!((50..200).contains(&count(Payment::Never)));
        assert!((100..300).contains(&count(Payment::Twice)));
        assert_eq!(Payment::of(7, 1), Payment::of(7, 1));
    }
}
