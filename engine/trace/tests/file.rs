//! The file format: what is written is read again; what was broken off is cut; what is damaged is refused.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Shape, bytes, is_prefix, meta, shapes, trace};
use proptest::prelude::*;
use std::path::Path;
use strata_trace::{Meta, Opened, PartFile, RoundDecoder, Trace, TraceError, TraceWriter, encode, most_bytes};

const SMALL: Shape = Shape { layers: 2, experts: 9, used: 2, rounds: 3, times: true, hits: true, moves: true };

fn read(file: &[u8]) -> Result<Opened, TraceError> {
    Trace::read_from(file, file.len() as u64, "t.strace")
}

fn refused(file: &[u8]) -> String {
    read(file).unwrap_err().to_string()
}

/// Where each frame of a file starts, the header being the first, and the end.
fn frames(file: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let mut starts = vec![0, 16 + number(12) + 8];
    while starts[starts.len() - 1] < file.len() {
        let at = starts[starts.len() - 1];
        starts.push(at + 9 + number(at) + 8);
    }
    starts
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(shape in shapes(), seed: u64) {
        let whole = trace(shape, seed);
        let opened = read(&bytes(&whole)).unwrap();
        prop_assert_eq!(&opened.trace, &whole);
        prop_assert_eq!(opened.warnings.len(), usize::from(whole.lost > 0));
        prop_assert_eq!(bytes(&opened.trace), bytes(&whole));
    }

    #[test]
    fn rounds_that_were_encoded_before_give_the_same_file(shape in shapes(), seed: u64) {
        let whole = trace(shape, seed);
        let mut writer = TraceWriter::new(Vec::new(), whole.meta.clone()).unwrap();
        let (mut buffer, mut decoder) = (Vec::new(), RoundDecoder::default());
        for round in 0..whole.rounds.len() {
            let record = whole.record(round);
            buffer.clear();
            encode(&record, &mut buffer);
            let most = most_bytes(&whole.meta, record.tokens.len(), record.moves.unwrap_or_default().len());
            prop_assert!(buffer.len() <= most);
            writer.append(&decoder.decode(&buffer, &whole.meta).unwrap()).unwrap();
        }
        prop_assert_eq!(writer.finish(whole.lost).unwrap(), (bytes(&whole), bytes(&whole).len() as u64));
    }

    #[test]
    fn several_damaged_bytes_are_refused_or_cut(seed: u64, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let whole = trace(SMALL, seed);
        let mut file = bytes(&whole);
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(Opened { trace, .. }) = read(&file) {
            prop_assert!(is_prefix(&trace, &whole));
        }
    }

    #[test]
    fn any_bytes_are_refused(noise in prop::collection::vec(any::<u8>(), 0..200), valid in 0usize..17) {
        let mut file = bytes(&trace(SMALL, 1))[..valid].to_vec();
        file.extend(noise);
        prop_assert!(read(&file).is_err());
    }
}

// Each case reads a file some thousand times.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_file_cut_at_every_byte_gives_its_first_rounds(shape in shapes(), seed: u64) {
        let whole = trace(shape, seed);
        let file = bytes(&whole);
        let starts = frames(&file);
        for cut in 0..file.len() {
            match read(&file[..cut]) {
                Ok(Opened { trace, warnings }) => {
                    let rounds = starts.iter().skip(2).filter(|end| **end <= cut).count();
                    prop_assert_eq!(trace.rounds.len(), rounds, "cut at {}", cut);
                    prop_assert!(is_prefix(&trace, &whole));
                    let left = cut - starts[rounds + 1];
                    let says = if left > 0 { format!("the {left} bytes behind") } else { "broken off behind".into() };
                    prop_assert!(warnings.len() == 1 && warnings[0].contains(&says), "{:?}", warnings);
                }
                Err(e) => prop_assert!(cut < starts[1], "cut at {}: {}", cut, e),
            }
        }
    }

    #[test]
    fn a_flipped_byte_is_refused_or_cuts_the_end(shape in shapes(), seed: u64, flip in 1u8..) {
        let whole = trace(shape, seed);
        let mut file = bytes(&whole);
        for at in 0..file.len() {
            file[at] ^= flip;
            if let Ok(Opened { trace, warnings }) = read(&file) {
                prop_assert!(is_prefix(&trace, &whole), "byte {}", at);
                // All that is cut is the frame that ends the file.
                prop_assert!(trace.rounds.len() == whole.rounds.len() && warnings.len() == 1, "byte {}", at);
            }
            file[at] ^= flip;
        }
    }
}

/// Some file systems leave zeros where bytes had not reached the disk before the power went.
#[test]
fn zeros_at_the_end_are_a_broken_off_round() {
    let whole = trace(SMALL, 7);
    let file = bytes(&whole);
    let starts = frames(&file);
    for from in starts[1]..file.len() {
        let mut file = file.clone();
        file[from..].fill(0);
        file.extend([0; 5000]);
        let Opened { trace, warnings } = read(&file).unwrap();
        // A round whose last bytes are zeros anyway is whole.
        assert!(is_prefix(&trace, &whole) && warnings.len() == 1, "{from}: {warnings:?}");
        assert!(trace.rounds.len() + 2 >= starts.iter().filter(|s| **s <= from).count());
    }
}

#[test]
fn frames_out_of_place_are_refused() {
    let file = bytes(&trace(SMALL, 3));
    let s = frames(&file);
    let parts = |order: &[usize]| order.iter().flat_map(|&i| &file[s[i]..s[i + 1]]).copied().collect::<Vec<u8>>();
    assert_eq!(parts(&[0, 1, 2, 3, 4]), file);
    for order in [&[0, 2, 1, 3, 4][..], &[0, 2, 3, 4], &[0, 1, 1, 2, 3, 4], &[0, 4, 1]] {
        let e = refused(&parts(order));
        assert!(e.contains("the file is damaged") && e.contains("checksum"), "{e}");
    }
    // As the last one it is taken for a frame that was being written.
    assert!(read(&parts(&[0, 1, 2, 4])).unwrap().warnings[0].contains("behind hold no whole one"));
    let e = refused(&parts(&[0, 1, 2, 3, 4, 4]));
    assert!(e.contains(&format!("t.strace byte {}: found 41 bytes behind the end, expected none", file.len())), "{e}");
}

#[test]
fn damage_is_named_with_its_byte() {
    let file = bytes(&trace(SMALL, 3));
    let s = frames(&file);
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        refused(&file)
    };
    for (found, expected) in [
        (
            with(0, b"GGUF"),
            "t.strace byte 0: found something else, expected a trace, which begins with STRATATR".into(),
        ),
        (
            with(8, &[2]),
            "t.strace byte 8: found version 2 of the format, expected 1; a newer strata may know it".into(),
        ),
        (with(20, b"?"), format!("t.strace byte {}: found checksum ", s[1] - 8)),
        (with(s[1], &[1]), format!("t.strace byte {}: found length 0x1 ", s[1]).replace("0x1 ", "")),
        (with(s[1] + 30, &[0xff]), format!("t.strace byte {}: found checksum ", s[2] - 8)),
        (refused(&[]), "t.strace byte 0: found something else".into()),
        (
            refused(&file[..10]),
            "t.strace byte 10: found the end of the file, expected the rest of a trace's header".into(),
        ),
        (
            refused(&file[..100]),
            "t.strace byte 100: found the end of the file, expected the rest of a trace's meta".into(),
        ),
    ] {
        assert!(found.starts_with(&expected), "{found}\n{expected}");
    }
}

/// A file that says it has 4 GiB of meta, or a round of them, is believed as far as it goes.
#[test]
fn lengths_beyond_the_file_take_no_memory() {
    let mut file = bytes(&trace(SMALL, 3));
    let start = frames(&file)[1];
    file[start..start + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(read(&file).unwrap().trace.rounds.len(), 0);
    file[12..16].fill(0xff);
    assert!(refused(&file).contains("expected the rest of a trace's meta"));
}

#[test]
fn a_meta_that_makes_no_sense_is_refused_with_its_field() {
    // A file with this meta, whatever it is.
    let file = |json: &str| {
        let mut file = b"STRATATR\x01\0\0\0".to_vec();
        file.extend((json.len() as u32).to_le_bytes());
        file.extend(json.as_bytes());
        file.extend(twox_hash::XxHash3_64::oneshot_with_seed(0, &file).to_le_bytes());
        file
    };
    let good = serde_json::to_string(&meta(2, 9, 2)).unwrap();
    assert_eq!(read(&file(&good)).unwrap().trace.meta, meta(2, 9, 2));
    for (from, to, want) in [
        ("\"layers\":2", "\"layers\":0", "t.strace: meta.layers: found 0, expected 1 to 4096"),
        ("\"layers\":2", "\"layers\":3", "t.strace: meta.expert_bytes: found 2 sizes, expected 3, one for each layer"),
        ("\"experts\":9", "\"experts\":65537", "t.strace: meta.experts: found 65537, expected 1 to 65536"),
        ("\"used\":2", "\"used\":10", "t.strace: meta.used: found 10, expected 1 to 9"),
        ("\"used\":2", "\"used\":-1", "t.strace byte 16, meta, column "),
        ("[1000", "[0", "t.strace: meta.expert_bytes[0]: found 0, expected 1 to "),
        ("123456", "1125899906842625", "t.strace: meta.dense_bytes: found 1125899906842625, expected at most "),
        ("123456", "1e400", "t.strace byte 16, meta, column "),
        ("\"dense_bytes\"", "\"dense_byte\"", "found unknown field `dense_byte`, expected one of `origin`"),
        (",\"clock\":\"monotonic\"", "", "found missing field `clock`, expected what holds for a trace"),
        ("\"synthetic\"", "\"dreamt\"", "found unknown variant `dreamt`, expected one of `recorded`"),
        ("\"value\":", "\"valeu\":", "found unknown field `valeu`"),
    ] {
        assert!(good.contains(from), "{from}");
        let e = refused(&file(&good.replacen(from, to, 1)));
        assert!(e.contains(want), "{e}\n{want}");
    }
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    let whole = trace(SMALL, 5);
    let mut writer = TraceWriter::new(Vec::new(), whole.meta.clone()).unwrap();
    let record = whole.record(0);
    let with =
        |ids: &[u16]| record.ids.iter().zip(ids).map(|(_, id)| *id).chain(record.ids[ids.len()..].to_vec()).collect();
    let (far, twice): (Vec<u16>, Vec<u16>) = (with(&[9]), with(&[4, 4]));
    for (ids, want) in [
        (&far[..], "token 0, layer 0: found expert 9, expected one below 9"),
        (&twice, "token 0, layer 0: found expert 4 twice, expected each once"),
        (&far[1..], "experts, expected "),
    ] {
        let e = writer.append(&strata_trace::Record { ids, ..record }).unwrap_err().to_string();
        assert!(e.contains(want), "{e}");
    }
    let round = strata_trace::Round { total_nanos: u64::MAX, ..record.round };
    let e = writer.append(&strata_trace::Record { round, ..record }).unwrap_err().to_string();
    assert!(e.contains("total_nanos: found 18446744073709551615, expected at most 86400000000000"), "{e}");
    let e = RoundDecoder::default().decode(&[0; 30], &whole.meta).unwrap_err().to_string();
    assert!(e.starts_with("a recorded round byte 28: found 2 bytes of a round left, expected 8 of branches"), "{e}");
    assert_eq!((writer.rounds(), writer.tokens()), (0, 0));
    assert!(TraceWriter::new(Vec::new(), Meta { layers: 0, ..meta(1, 1, 1) }).is_err());
}

#[test]
fn rounds_have_the_same_parts() {
    let (with, without) = (trace(SMALL, 5), trace(Shape { hits: false, ..SMALL }, 5));
    let mut mixed = Trace::new(with.meta.clone());
    mixed.push_record(&with.record(0)).unwrap();
    let e = mixed.push_record(&without.record(1)).unwrap_err().to_string();
    assert!(e.contains("found round 1 without hits, expected with hits, as those before it"), "{e}");
    let mut writer = TraceWriter::new(Vec::new(), with.meta.clone()).unwrap();
    writer.append(&with.record(0)).unwrap();
    writer.append(&without.record(1)).unwrap();
    assert!(refused(&writer.finish(0).unwrap().0).contains("found round 1 without hits"));
}

/// What a released version wrote is read by all later ones.
#[test]
fn a_file_of_version_1_opens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.strace");
    let old = Trace::read(&path).unwrap();
    let expected = trace(SMALL, 2026);
    assert_eq!((&old.trace, old.warnings.len()), (&expected, usize::from(expected.lost > 0)));
    assert_eq!(std::fs::read(&path).unwrap(), bytes(&expected));
}

#[test]
fn files_have_their_name_once_they_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, whole) = (dir.path().join("a.strace"), trace(SMALL, 1));
    let part = PartFile::part_of(&path);
    let file = PartFile::create(&path, false).unwrap();
    assert!(part.exists() && !path.exists());
    let file = whole.write(file).unwrap();
    assert_eq!(Trace::read(&part).unwrap().trace, whole);
    assert!(PartFile::create(&path, false).unwrap_err().to_string().contains("a.strace.part: "));
    file.finish().unwrap();
    assert!(!part.exists());
    assert_eq!(Trace::read(&path).unwrap().trace, whole);
    // What is there stays unless it may be replaced.
    assert!(PartFile::create(&path, false).is_err() && !part.exists());
    PartFile::create(&path, true).unwrap().discard();
    assert!(!part.exists() && Trace::read(&path).is_ok());
    let late = dir.path().join("b");
    let file = PartFile::create(&late, false).unwrap();
    std::fs::write(&late, "x").unwrap();
    assert!(file.finish().is_err());
    assert_eq!(std::fs::read(&late).unwrap(), b"x");
    let e = Trace::read(dir.path()).unwrap_err().to_string();
    assert!(e.ends_with("not a regular file"), "{e}");
}
