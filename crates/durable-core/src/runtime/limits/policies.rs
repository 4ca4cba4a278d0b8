//! The policies as this process has last read them: read again when a claim or an error says that there are newer ones
//! (rule LIM-8).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{InvalidValue, StoreError};
use crate::limiter::{Limit, LimitKind, LimitPolicy};
use crate::store::{Policies, RateDemand, Store};

/// One version of all policies.
#[derive(Default)]
pub(crate) struct PolicySet {
    version: i64,
    gates: HashMap<String, Arc<LimitPolicy>>,
    rates: HashMap<String, Arc<LimitPolicy>>,
}

impl PolicySet {
    fn of(policies: Policies) -> Self {
        let mut set = Self {
            version: policies.version,
            ..Self::default()
        };
        for policy in policies.limits {
            let kind = match policy.limit.kind() {
                LimitKind::Gate => &mut set.gates,
                LimitKind::Rate => &mut set.rates,
            };
            kind.insert(policy.name.as_str().to_owned(), policy);
        }
        set
    }

    pub(crate) fn gate(&self, name: &str) -> Option<&Arc<LimitPolicy>> {
        self.gates.get(name)
    }

    pub(crate) fn rate(&self, name: &str) -> Option<&Arc<LimitPolicy>> {
        self.rates.get(name)
    }

    /// Refuses a rate limit that is not there, and a weight that it can never pay for (rule LIM-3).
    fn check(&self, demand: &RateDemand) -> Result<(), InvalidValue> {
        let name = demand.key.limit_name();
        match self.rate(name).map(|policy| policy.limit) {
            Some(Limit::Rate { burst, .. }) if demand.weight > burst => Err(InvalidValue::TooHeavy {
                name: name.to_owned(),
                weight: demand.weight,
                burst,
            }),
            Some(_) => Ok(()),
            None => Err(InvalidValue::UnknownRateLimit {
                name: name.to_owned(),
            }),
        }
    }
}

/// The newest version that is known here.
pub(crate) struct PolicyCache {
    store: Arc<dyn Store>,
    current: RwLock<Arc<PolicySet>>,
}

impl PolicyCache {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            current: RwLock::default(),
        }
    }

    pub(crate) fn current(&self) -> Arc<PolicySet> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// This version or a newer one.
    pub(crate) async fn at_least(&self, version: i64) -> Result<Arc<PolicySet>, StoreError> {
        let current = self.current();
        if current.version >= version {
            return Ok(current);
        }
        self.refresh().await
    }

    pub(crate) async fn refresh(&self) -> Result<Arc<PolicySet>, StoreError> {
        let set = Arc::new(PolicySet::of(self.store.limits().await?));
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Of two reads at a time the later answer may be the older one.
        if set.version >= current.version {
            *current = set;
        }
        Ok(Arc::clone(&current))
    }
}

/// Refuses demands that can never be met; what the cache does not know is read again first.
pub(crate) async fn check_rate(cache: &PolicyCache, demand: &RateDemand) -> Result<(), RateRefused> {
    if cache.current().check(demand).is_ok() {
        return Ok(());
    }
    let fresh = cache.refresh().await?;
    Ok(fresh.check(demand)?)
}

/// Why a demand was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RateRefused {
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    #[error(transparent)]
    Store(#[from] StoreError),
}
