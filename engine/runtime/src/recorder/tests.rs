//! The ring: nothing is lost in silence, and no memory is taken while rounds are noted.

use super::drain::Recording;
use super::notes::Pass;
use super::{About, Recorder, Slot, Times};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_model::{Observer, Routing};
use strata_trace::{Branch, DraftSource, Meta, ModelMeta, Origin, Phase, Trace};

const LAYERS: usize = 3;
const USED: usize = 2;

fn about() -> About {
    let meta = Meta {
        origin: Origin::Recorded,
        model: ModelMeta { name: "m".into(), id: String::new(), quant: String::new() },
        engine: "test".into(),
        layers: LAYERS,
        experts: 70,
        used: USED,
        expert_bytes: vec![10, 100, 1000],
        dense_bytes: 50_000,
        knobs: Default::default(),
        hardware: None,
        clock: "monotonic".into(),
        resident: Vec::new(),
        unix_seconds: None,
        note: String::new(),
    };
    About { meta, head_bytes: 20_000 }
}

const TIMES: Times = Times { total: 1_000_000_000, draft: 30, commit: 4 };

/// Shows a recorder a pass of `rows` rows, whose experts follow from `seed`.
fn pass(recorder: &mut Recorder, rows: usize, seed: usize, head: bool) {
    recorder.watch(rows, Phase::Decode);
    for layer in 0..LAYERS {
        let ids =
            (0..rows).flat_map(|row| [(seed + row * layer) % 70, (seed + row * layer + 1) % 70].map(|id| id as u16));
        let routing = Routing { used: USED, ids: ids.collect(), weights: [0.75, 0.25].repeat(rows) };
        recorder.routing(layer, &routing);
        recorder.experts(layer);
    }
    let tokens = vec![seed as u32; rows];
    let pass =
        Pass { phase: Phase::Decode, source: DraftSource::Mtp, tokens: &tokens, first: seed, committed: 1, head };
    recorder.add(&pass, TIMES);
}

#[test]
fn a_pass_becomes_a_round() {
    let (mut recorder, recording) = Recording::start(Vec::new(), about(), 4).unwrap();
    recorder.begin();
    pass(&mut recorder, 3, 5, true);
    pass(&mut recorder, 1, 69, false);
    recorder.begin();
    pass(&mut recorder, 1, 0, true);
    let (file, recorded) = recording.finish().unwrap();
    assert_eq!((recorded.rounds, recorded.tokens, recorded.bytes), (3, 5, file.len() as u64));
    assert_eq!((recorded.lost, recorded.missed, recorded.warning()), (0, 0, None));
    let trace = Trace::read_from(&file[..], file.len() as u64, "t").unwrap().trace;
    assert_eq!(trace.rounds.iter().map(|r| (r.request, r.round)).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0)]);
    // Row 2 of layer 2 begins 2 x 2 experts further.
    assert_eq!((trace.chosen(0, 2), trace.chosen(1, 1), trace.chosen(2, 2)), (&[5, 6][..], &[6, 7][..], &[9, 10][..]));
    assert_eq!((trace.chosen(3, 0), trace.gates[0], trace.gates[1]), (&[69, 0][..], 49151, 16384));
    let drafted: Vec<_> = trace.tokens.iter().map(|t| (t.position, t.drafted, t.committed)).collect();
    assert_eq!(drafted[..3], [(5, false, true), (6, true, false), (7, true, false)]);
    // Distinct experts: 2 in layer 0, 4 in layer 1, 6 in layer 2.
    let bytes = |round: usize, branch| trace.rounds[round].bytes[branch as usize];
    assert_eq!([bytes(0, Branch::CpuExperts), bytes(0, Branch::Other)], [20 + 400 + 6000, 50_000]);
    assert_eq!([bytes(1, Branch::CpuExperts), bytes(1, Branch::Other)], [2220, 30_000]);
    for (round, layers) in trace.rounds.iter().zip(trace.layer_times.chunks(LAYERS)) {
        let nanos = |branch| round.nanos[branch as usize];
        assert_eq!((nanos(Branch::Draft), nanos(Branch::Commit)), (30, 4));
        assert_eq!(round.nanos.iter().sum::<u64>(), round.total_nanos);
        assert_eq!(layers.iter().map(|l| l.cpu).sum::<u64>(), nanos(Branch::CpuExperts));
    }
}

#[test]
fn decisions_use_the_nanoseconds_of_the_trace() {
    assert_eq!((TIMES.seconds_draft(), TIMES.seconds_verify()), (30.0 / 1e9, 999_999_970.0 / 1e9));
}

#[test]
fn noting_rounds_takes_no_memory() {
    let (mut recorder, recording) = Recording::start(Vec::new(), about(), 40).unwrap();
    let held = |r: &Recorder| (r.message.as_ptr(), r.message.capacity(), r.notes.memory());
    let before = held(&recorder);
    for seed in 0..500 {
        pass(&mut recorder, 1 + seed % 40, seed, true);
    }
    assert_eq!(held(&recorder), before);
    assert_eq!(recording.finish().unwrap().1.rounds, 500);
}

/// A disk that stands still while it is shut.
struct Disk {
    open: Arc<AtomicBool>,
    bytes: Vec<u8>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.open.load(Ordering::Relaxed) {
            std::thread::sleep(super::NAP);
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn rounds_for_which_there_is_no_room_are_counted() {
    let open = Arc::new(AtomicBool::new(true));
    let disk = Disk { open: Arc::clone(&open), bytes: Vec::new() };
    let (mut recorder, recording) = Recording::with_ring(disk, about(), 16, 2000).unwrap();
    recorder.begin();
    open.store(false, Ordering::Relaxed);
    let mut shown = 0;
    while recorder.shared.lost.load(Ordering::Relaxed) < 2 {
        pass(&mut recorder, 1, shown, true);
        shown += 1;
    }
    open.store(true, Ordering::Relaxed);
    // There is room again soon enough for this one.
    pass(&mut recorder, 1, shown, true);
    // One that the ring could never hold is lost at once.
    pass(&mut recorder, 100, 0, true);
    let (disk, recorded) = recording.finish().unwrap();
    assert_eq!((recorded.rounds, recorded.lost), (shown as u64 - 1, 3));
    assert_eq!(recorded.warning().unwrap(), "the trace is not complete: 3 rounds could not be written in time");
    let opened = Trace::read_from(&disk.bytes[..], disk.bytes.len() as u64, "t").unwrap();
    assert_eq!((opened.trace.lost, opened.warnings.len()), (3, 1));
    // The number of the round tells where.
    let numbers: Vec<_> = opened.trace.rounds.iter().map(|r| r.round as usize).collect();
    assert_eq!(numbers, (0..shown - 2).chain([shown]).collect::<Vec<_>>());
}

/// A disk that is full.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_full_is_an_error_at_the_end_and_nobody_waits_for_it() {
    let (mut recorder, recording) = Recording::with_ring(Full(2000), about(), 16, 1000).unwrap();
    for seed in 0..100 {
        pass(&mut recorder, 1, seed, true);
    }
    let e = recording.finish().err().unwrap().to_string();
    assert!(e.starts_with("cannot write the trace: "), "{e}");
}

#[test]
fn answers_side_by_side_are_counted() {
    let slot = Slot::new();
    assert!(slot.take().is_none());
    let (recorder, recording) = Recording::start(Vec::new(), about(), 4).unwrap();
    slot.put(recorder);
    let mut first = slot.take().unwrap();
    assert!(slot.take().is_none() && slot.take().is_none());
    pass(&mut first, 1, 0, true);
    slot.give(first);
    let mut second = slot.take().unwrap();
    pass(&mut second, 1, 0, true);
    slot.clear();
    slot.give(second);
    assert!(slot.take().is_none());
    let (file, recorded) = recording.finish().unwrap();
    assert_eq!((recorded.rounds, recorded.missed), (2, 2));
    assert_eq!(recorded.warning().unwrap(), "the trace is not complete: 2 answers ran beside others");
    let trace = Trace::read_from(&file[..], file.len() as u64, "t").unwrap().trace;
    assert_eq!(trace.rounds.iter().map(|r| r.request).collect::<Vec<_>>(), [0, 1]);
}

/// Bytes that both sides of a test see.
#[derive(Clone, Default)]
struct Both(Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_recording_that_is_dropped_is_broken_off_with_all_its_rounds() {
    let file = Both::default();
    let (mut recorder, recording) = Recording::start(file.clone(), about(), 16).unwrap();
    (0..50).for_each(|seed| pass(&mut recorder, 2, seed, true));
    drop(recording);
    // Nobody writes this one, and nobody waits for it.
    pass(&mut recorder, 2, 0, true);
    let bytes = file.0.lock().unwrap();
    let opened = Trace::read_from(&bytes[..], bytes.len() as u64, "t").unwrap();
    assert_eq!(opened.trace.rounds.len(), 50);
    assert_eq!(opened.warnings, ["t: the recording was broken off behind 50 whole rounds; what followed is not here"]);
}

/// Nanoseconds that the decode loop spends on a round's record; nothing is asserted.
#[test]
#[ignore = "prints times, which mean something in a release build only"]
fn what_a_round_costs_the_decode_loop() {
    // Layers, experts and experts used of nano and of the published model.
    for (layers, experts, used) in [(8, 64, 6), (48, 512, 10)] {
        let mut about = about();
        about.meta = Meta { layers, experts, used, expert_bytes: vec![1000; layers], ..about.meta };
        let (mut recorder, recording) = Recording::start(io::sink(), about, 8).unwrap();
        for rows in [1, 4] {
            let row: Vec<u16> = (0..used).map(|i| (i * experts / used) as u16).collect();
            let routing = Routing { used, ids: row.repeat(rows), weights: vec![1.0 / used as f32; rows * used] };
            let rounds = 2000;
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..rounds {
                let start = std::time::Instant::now();
                recorder.watch(rows, Phase::Decode);
                for layer in 0..layers {
                    recorder.routing(layer, &routing);
                    recorder.experts(layer);
                }
                let (tokens, source) = (vec![1; rows], DraftSource::None);
                let pass = Pass { phase: Phase::Decode, source, tokens: &tokens, first: 0, committed: 1, head: true };
                recorder.add(&pass, TIMES);
                spent += start.elapsed();
                // The decode loop would compute for some milliseconds; so the ring never fills.
                if recorder.ring.slots() < recorder.ring.buffer().capacity() / 2 {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
            }
            println!("{layers} layers, {used} of {experts}, {rows} rows: {} ns", spent.as_nanos() / rounds);
        }
        drop(recorder);
        let _ = recording.finish();
    }
}
