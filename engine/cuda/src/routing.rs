//! What routers choose.

use crate::buffer::{Floats, Memory, blocks, n};
use crate::device::Arg;
use crate::ops::fits;
use std::sync::Arc;

/// Where a value that is no number is noted: two words that are the bits of a 64-bit number, all ones at the start; the number
/// of the place that is looked at; and the largest magnitude that passes.
#[derive(Clone, Copy)]
pub struct Note<'a> {
    /// The two words.
    pub found: &'a Floats,
    /// The place. Of two places the smaller is told.
    pub site: u32,
    /// The largest magnitude.
    pub largest: f32,
}

impl Note<'_> {
    /// As kernels take it.
    pub(crate) fn args(note: Option<&Note<'_>>) -> [Arg; 3] {
        match note {
            Some(note) => [note.found.arg(), Arg::N(note.site), Arg::F(note.largest)],
            None => [Arg::At(0), Arg::N(0), Arg::F(f32::MAX)],
        }
    }
}

/// What a router chooses, on the device alone; chosen when it is first used.
pub struct DeviceRouting {
    logits: Floats,
    experts: usize,
    used: usize,
    note: [Arg; 3],
    pub(crate) ids: Arc<Memory>,
    pub(crate) weights: Arc<Memory>,
}

/// Where the host is told of a choice: the rows' inputs, the published words and the flag, the round's number, and a word that is
/// zero.
pub(crate) struct Telling {
    pub(crate) inputs: Arg,
    pub(crate) hidden: usize,
    pub(crate) out: Arg,
    pub(crate) flag: Arg,
    pub(crate) round: Arg,
    pub(crate) ready: Arg,
}

impl DeviceRouting {
    /// Starts choosing; with an `opening`, one value a row, the weights of each row's terms go to `factor`.
    pub(crate) fn choose(&self, factors: Option<(&Floats, Arg)>, telling: Option<Telling>) {
        let rows = self.logits.len() / self.experts.max(1);
        let (opening, factor) = factors.map_or((Arg::At(0), Arg::At(0)), |(opening, factor)| (opening.arg(), factor));
        let nowhere = Arg::At(0);
        let Telling { inputs, hidden, out, flag, round, ready } = telling.unwrap_or(Telling {
            inputs: nowhere,
            hidden: 0,
            out: nowhere,
            flag: nowhere,
            round: nowhere,
            ready: nowhere,
        });
        let [found, site, largest] = self.note;
        let args = [
            self.logits.arg(),
            self.ids.arg(),
            self.weights.arg(),
            n(self.experts),
            n(self.used),
            found,
            site,
            largest,
            opening,
            factor,
            inputs,
            n(hidden),
            out,
            flag,
            round,
            ready,
        ];
        let threads = self.experts.next_multiple_of(32) as u32;
        // SAFETY: a block takes a row of logits, of which there are at most 1,024; the outputs have `used` entries a row, factors
        // one more, and what is told has room for ids, weights and inputs.
        unsafe { self.logits.device().launch("route", [blocks(rows, 1), 1, 1], threads, &args) };
    }
}

impl Floats {
    /// The `used` best experts of each row of router logits, on the device, once they are used. Logits that are no numbers are
    /// noted.
    pub fn routed(&self, experts: usize, used: usize, note: Option<Note<'_>>) -> DeviceRouting {
        let device = self.device();
        let rows = self.len() / experts.max(1);
        let possible = (1..=1024).contains(&experts) && used <= experts.min(32);
        let fit = fits(device, "router", rows * experts == self.len() && possible);
        let (ids, weights) = (Memory::new(device, rows * used * 4), Memory::new(device, rows * used * 4));
        // Nothing is started after a failure.
        let experts = if fit { experts } else { 1 };
        DeviceRouting { logits: self.alias(), experts, used, note: Note::args(note.as_ref()), ids, weights }
    }

    /// [`Floats::routed`] for the host: ids and weights, `[rows][used]`. Waits for them.
    pub fn route(&self, experts: usize, used: usize) -> (Vec<u16>, Vec<f32>) {
        let device = self.device();
        let pairs = self.len() / experts.max(1) * used;
        let (mut chosen, mut shares) = (vec![0u32; pairs], vec![0.0; pairs]);
        let routed = self.routed(experts, used, None);
        routed.choose(None, None);
        // SAFETY: both have an entry for each pair, of types that any bits are a value of.
        unsafe {
            device.download(routed.ids.address(), &mut chosen);
            device.download(routed.weights.address(), &mut shares);
        }
        (chosen.into_iter().map(|id| u16::try_from(id).unwrap_or(0)).collect(), shares)
    }
}
