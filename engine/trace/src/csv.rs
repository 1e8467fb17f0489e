//! Traces as a table: a line for each token and layer.

use crate::round::{DraftSource, Phase};
use crate::trace::{Trace, TraceError, gate_from_fixed};
use std::fmt::Write as _;
use std::io::Write;

const COLUMNS: &str = "request,round,phase,source,row,token,position,drafted,committed,layer,experts,weights,hits,dense_nanos,cpu_nanos\n";

/// Writes a trace as CSV with the columns
/// `request,round,phase,source,row,token,position,drafted,committed,layer,experts,weights,hits,dense_nanos,cpu_nanos`.
///
/// There is a line for each token and layer, in the order of rounds, tokens and layers. `experts`, `weights` and `hits`
/// hold as many numbers as experts are used, best first, with spaces between them; yes and no are 1 and 0. The times are
/// those of the layer in the whole round, so they are the same in all its rows. What was not recorded is empty.
///
/// # Errors
/// `out` fails.
pub fn write_csv(trace: &Trace, out: &mut impl Write) -> Result<(), TraceError> {
    out.write_all(COLUMNS.as_bytes()).map_err(TraceError::writing)?;
    let mut line = String::new();
    for number in 0..trace.rounds.len() {
        let record = trace.record(number);
        let (round, used) = (record.round, trace.meta.used);
        for (row, token) in record.tokens.iter().enumerate() {
            for layer in 0..trace.meta.layers {
                line.clear();
                let (phase, source) = (phase(round.phase), source(round.source));
                let (drafted, committed) = (u8::from(token.drafted), u8::from(token.committed));
                let _ = write!(line, "{},{},{phase},{source},{row},", round.request, round.round);
                let _ = write!(line, "{},{},{drafted},{committed},{layer},", token.id, token.position);
                let start = (row * trace.meta.layers + layer) * used;
                let accesses = start..start + used;
                join(&mut line, record.ids[accesses.clone()].iter());
                line.push(',');
                let weight = |&gate: &u16| format!("{:.6}", gate_from_fixed(gate));
                join(&mut line, record.gates[accesses.clone()].iter().map(weight));
                line.push(',');
                join(
                    &mut line,
                    record.hits.map(|hits| &hits[accesses]).unwrap_or_default().iter().map(|&h| u8::from(h)),
                );
                match record.layer_times.and_then(|times| times.get(layer)) {
                    Some(times) => {
                        let _ = writeln!(line, ",{},{}", times.dense, times.cpu);
                    }
                    None => line.push_str(",,\n"),
                }
                out.write_all(line.as_bytes()).map_err(TraceError::writing)?;
            }
        }
    }
    out.flush().map_err(TraceError::writing)
}

/// Appends values with spaces between them.
fn join(line: &mut String, values: impl Iterator<Item = impl std::fmt::Display>) {
    for (i, value) in values.enumerate() {
        // Writing to a string does not fail.
        let _ = if i == 0 { write!(line, "{value}") } else { write!(line, " {value}") };
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    }
}

fn source(source: DraftSource) -> &'static str {
    match source {
        DraftSource::None => "none",
        DraftSource::Mtp => "mtp",
        DraftSource::Lookup => "lookup",
        DraftSource::Both => "both",
        DraftSource::Own => "own",
    }
}
