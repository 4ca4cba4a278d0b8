//! Asks what no claim shows: unknown machines, and whether anybody does the maintenance.

use durable_core::store::Survey;
use durable_core::{MachineKey, QueueName};
use sqlx::Row as _;

use crate::connect::Shared;
use crate::values::decode_error;

pub(crate) async fn survey(
    shared: &Shared,
    queues: &[QueueName],
    machines: &[MachineKey],
) -> Result<Survey, sqlx::Error> {
    let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = machines.iter().map(MachineKey::name).collect();
    let versions: Vec<i32> = machines.iter().map(|machine| machine.version().into()).collect();
    let rows = sqlx::query(shared.statements.survey.text())
        .bind(queues)
        .bind(names)
        .bind(versions)
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut survey = Survey::default();
    for row in rows {
        survey.reaper = row.try_get("reaper")?;
        survey.collector = row.try_get("collector")?;
        if let Some(queue) = row.try_get::<Option<String>, _>("queue")? {
            let version = u16::try_from(row.try_get::<i32, _>("machine_version")?).map_err(decode_error)?;
            let machine = MachineKey::new(row.try_get::<String, _>("machine")?, version);
            let queue = QueueName::new(queue).map_err(decode_error)?;
            survey.unknown.push((queue, machine.map_err(decode_error)?));
        }
    }
    Ok(survey)
}
