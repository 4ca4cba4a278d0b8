//! Samples of several runs, made into figures.

use anyhow::Context as _;
use comfy_table::Table;
use serde::Serialize;

/// One measurement of one run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) workload: &'static str,
    pub(super) variant: String,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    /// What it is compared with, measured in the same run.
    pub(super) floor: Option<f64>,
}

impl Sample {
    pub(super) fn new(workload: &'static str, variant: impl Into<String>, metric: &'static str) -> Self {
        Self {
            workload,
            variant: variant.into(),
            metric,
            value: 0.0,
            unit: "",
            floor: None,
        }
    }

    pub(super) fn value(mut self, value: f64, unit: &'static str) -> Self {
        (self.value, self.unit) = (value, unit);
        self
    }

    pub(super) fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Figure {
    workload: &'static str,
    variant: String,
    metric: &'static str,
    /// The median of the runs.
    value: f64,
    unit: &'static str,
    /// The median of the floors.
    floor: Option<f64>,
    /// The median of the ratios, each of one run.
    ratio: Option<f64>,
    runs: usize,
    /// The distance from the lowest to the highest run, as a part of the median.
    spread: f64,
}

/// All samples so far.
#[derive(Default)]
pub(super) struct Figures {
    samples: Vec<Sample>,
}

impl Figures {
    pub(super) fn add(&mut self, samples: Vec<Sample>) {
        self.samples.extend(samples);
    }

    /// One figure per workload, variant and metric, in the order of their first samples.
    fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Vec::new();
        for first in &self.samples {
            let same = |one: &&Sample| {
                (one.workload, &one.variant, one.metric) == (first.workload, &first.variant, first.metric)
            };
            let known = |figure: &Figure| {
                (figure.workload, &figure.variant, figure.metric)
                    == (first.workload, &first.variant, first.metric)
            };
            if figures.iter().any(known) {
                continue;
            }
            let samples: Vec<&Sample> = self.samples.iter().filter(same).collect();
            let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
            let floors: Vec<f64> = samples.iter().filter_map(|sample| sample.floor).collect();
            let ratios: Vec<f64> = samples
                .iter()
                .filter_map(|sample| Some(sample.value / sample.floor?))
                .collect();
            figures.push(Figure {
                workload: first.workload,
                variant: first.variant.clone(),
                metric: first.metric,
                value: median(&values),
                unit: first.unit,
                floor: (!floors.is_empty()).then(|| median(&floors)),
                ratio: (!ratios.is_empty()).then(|| median(&ratios)),
                runs: samples.len(),
                spread: spread(&values),
            });
        }
        figures
    }

    /// The table for people.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.set_header([
            "workload", "variant", "metric", "value", "unit", "floor", "ratio", "runs", "spread",
        ]);
        for figure in self.figures() {
            table.add_row([
                figure.workload.to_owned(),
                figure.variant,
                figure.metric.to_owned(),
                number(figure.value),
                figure.unit.to_owned(),
                figure.floor.map_or_else(String::new, number),
                figure
                    .ratio
                    .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                figure.runs.to_string(),
                format!("{:.0}%", figure.spread * 100.0),
            ]);
        }
        table
    }

    /// Writes the figures as JSON: a list of objects.
    pub(super) fn write_json(&self, file: &std::path::Path) -> anyhow::Result<()> {
        std::fs::write(file, serde_json::to_string_pretty(&self.figures())?)
            .with_context(|| format!("writing {}", file.display()))
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

pub(super) fn median(values: &[f64]) -> f64 {
    sorted(values).get(values.len() / 2).copied().unwrap_or(0.0)
}

fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match (sorted.first(), sorted.last()) {
        (Some(low), Some(high)) if median(values) != 0.0 => (high - low) / median(values),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_each_run() {
        let mut figures = Figures::default();
        for (value, floor) in [(10.0, 20.0), (30.0, 30.0), (20.0, 80.0)] {
            figures.add(vec![
                Sample::new("W1", "x", "drain").value(value, "1/s").floor(floor),
            ]);
        }
        let figures = figures.figures();
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].value, 20.0);
        assert_eq!(figures[0].ratio, Some(0.5));
        assert_eq!(figures[0].runs, 3);
        assert_eq!(figures[0].spread, 1.0);
    }
}
