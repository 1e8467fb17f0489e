//! Parked conversations: they go on bit for bit, and a damaged file never gives a state.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{NEVER, engine, fresh, generate, nano, noise, tiny, tiny_with};
use std::path::{Path, PathBuf};
use strata_gguf::Gguf;
use strata_model::{CpuOps, ModelId};
use strata_runtime::{Chat, ChatOptions, CheckpointParams, Engine, Error, GenerateParams, Parking, Session};
use twox_hash::XxHash3_128;

const LIMIT: u64 = 1 << 30;

fn parking(folder: &Path) -> Parking {
    Parking::new(folder, ModelId::of(&tiny()), LIMIT)
}

/// A short conversation, parked.
fn parked(engine: &Engine<CpuOps>, folder: &Path) -> (PathBuf, u64) {
    let mut session = engine.session(64, 8);
    generate(&mut session, &noise(1, 20), 4);
    (parking(folder).save(&session, b"a note", None).unwrap().path, session.state().fingerprint())
}

fn why(parking: &Parking, path: &Path, session: &mut Session<'_, CpuOps>) -> String {
    match parking.restore(path, session) {
        Err(e @ Error::Parked { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_conversation_goes_on_bit_for_bit() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let parking = parking(dir.path());
    let mut session = engine.session(512, 16).with_checkpoints(CheckpointParams { every: 32, ..Default::default() });
    let prompt = noise(2, 150);
    let first = generate(&mut session, &prompt, 5);
    let saved = parking.save(&session, "ä note".as_bytes(), None).unwrap();
    assert_eq!(std::fs::metadata(&saved.path).unwrap().len(), saved.bytes);
    let mut other = engine.session(400, 64);
    assert_eq!(parking.restore(&saved.path, &mut other).unwrap(), "ä note".as_bytes());
    assert_eq!(other.state().fingerprint(), session.state().fingerprint());
    assert_eq!((other.tokens(), other.checkpoints()), (session.tokens(), vec![128, 150]));
    // On, back to the end of the prompt, and back into it.
    let on = [&prompt[..], &first.tokens, &noise(3, 9)].concat();
    let back = [&prompt[..], &noise(4, 9)].concat();
    let into = [&prompt[..140], &noise(5, 9)].concat();
    for (prompt, new) in [(on, 10), (back, 9), (into, 21)] {
        let answer = generate(&mut other, &prompt, 5);
        assert_eq!(answer.timings.prompt_tokens - answer.timings.cached_tokens, new);
        assert_eq!((answer.tokens, other.state().fingerprint()), fresh(&engine, &prompt, 5));
    }
    // Parked again in its place.
    let again = parking.save(&other, b"", Some(&saved.path)).unwrap();
    assert_eq!((again.path, std::fs::read_dir(dir.path()).unwrap().count()), (saved.path, 1));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let (path, state) = parked(&engine, dir.path());
    let whole = std::fs::read(&path).unwrap();
    let parking = parking(dir.path());
    let mut session = engine.session(64, 8);
    let before = session.state().fingerprint();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for len in (0..whole.len()).rev() {
        file.set_len(len as u64).unwrap();
        let why = why(&parking, &path, &mut session);
        assert!(why.contains("bytes"), "{len}: {why}");
    }
    assert_eq!(session.state().fingerprint(), before);
    // Nor may anything follow it.
    std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(why(&parking, &path, &mut session).contains("expected"));
    std::fs::write(&path, &whole).unwrap();
    parking.restore(&path, &mut session).unwrap();
    assert_eq!(session.state().fingerprint(), state);
}

#[test]
fn a_flipped_byte_anywhere_is_refused() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = parked(&engine, dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let parking = parking(dir.path());
    let mut session = engine.session(64, 8);
    let (len, before) = (bytes.len(), session.state().fingerprint());
    let step = len / 250;
    let sampled = (0..200).chain((200..len - 20).step_by(step)).chain(len - 20..len);
    for (at, bit) in sampled.zip((0..8).cycle()) {
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        why(&parking, &path, &mut session);
        bytes[at] ^= 1 << bit;
    }
    assert_eq!(session.state().fingerprint(), before);
}

/// Headers whose own checksum is right, but whose lengths are lies.
#[test]
fn lies_about_lengths_take_no_memory() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = parked(&engine, dir.path());
    let whole = std::fs::read(&path).unwrap();
    let parking = parking(dir.path());
    for at in [40, 48, 56] {
        for lie in [0u64, 1, 19, 63, 64, 1 << 31, u64::MAX / 16, u64::MAX] {
            let mut bytes = whole.clone();
            let width = if at == 56 { 4 } else { 8 };
            bytes[at..at + width].copy_from_slice(&lie.to_le_bytes()[..width]);
            let sum = XxHash3_128::oneshot(&bytes[..64]);
            bytes[64..80].copy_from_slice(&sum.to_le_bytes());
            if bytes != whole {
                std::fs::write(&path, &bytes).unwrap();
                why(&parking, &path, &mut engine.session(64, 8));
            }
        }
    }
}

#[test]
fn refusals_say_what_was_found_and_expected() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = parked(&engine, dir.path());
    let ours = parking(dir.path());
    let id = ModelId::of(&tiny());
    let other = ModelId::of(&nano());
    let mut session = engine.session(64, 8);
    let sentence = why(&Parking::new(dir.path(), other, LIMIT), &path, &mut session);
    assert!(sentence.contains(&format!("of model {id}, expected {other}")), "{sentence}");
    let sentence = why(&ours, &path, &mut engine.session(22, 8));
    assert!(sentence.contains("23 tokens and the context holds 22"), "{sentence}");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, &bytes).unwrap();
    let sentence = why(&ours, &path, &mut session);
    assert!(sentence.contains("version 9, expected 1"), "{sentence}");
    std::fs::write(&path, [b"GGUF", &[0; 100][..]].concat()).unwrap();
    assert!(why(&ours, &path, &mut session).contains("no parked conversation"));
    assert!(matches!(ours.restore(&dir.path().join("none"), &mut session), Err(Error::Parking { .. })));
}

#[test]
fn models_are_told_apart() {
    let id = |w: &strata_gguf::Writer| ModelId::of(&Gguf::from_bytes("m", w.to_bytes().unwrap()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let whole = tiny_with(&[]);
    // Neither names nor shards matter.
    assert_eq!(id(&whole), ModelId::of(&tiny()));
    let shards = whole.write_split(dir.path(), "tiny", 3).unwrap();
    assert_eq!(id(&whole), ModelId::of(&Gguf::open(&shards[1]).unwrap()));
    assert_ne!(id(&whole), id(&tiny_with(&[("general.license", strata_gguf::Value::String("none".into()))])));
    let mut bytes = whole.to_bytes().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    assert_ne!(id(&whole), ModelId::of(&Gguf::from_bytes("m", bytes).unwrap()));
}

#[test]
fn a_folder_keeps_to_its_limit_and_knows_its_newest() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("not there yet");
    assert_eq!(parking(&folder).newest().unwrap(), None);
    let mut session = engine.session(64, 8);
    generate(&mut session, &noise(1, 20), 4);
    let id = ModelId::of(&tiny());
    let one = parking(&folder).save(&session, b"", None).unwrap();
    let two = Parking::new(&folder, id, 2 * one.bytes);
    let second = two.save(&session, b"", None).unwrap();
    assert_eq!((second.removed, two.newest().unwrap().as_deref()), (0, Some(second.path.as_path())));
    let third = two.save(&session, b"", None).unwrap();
    assert!(third.removed == 1 && !one.path.exists() && second.path.exists());
    // One that is larger than the limit is kept all the same: it is the one that was asked for.
    let fourth = Parking::new(&folder, id, 1).save(&session, b"", None).unwrap();
    assert!(fourth.removed == 2 && fourth.path.exists());
    // Conversations of other models are passed over.
    let other = Parking::new(&folder, ModelId::from_bytes([7; 16]), LIMIT);
    assert_eq!(other.newest().unwrap(), None);
    other.save(&session, b"", None).unwrap();
    // So is what a crash left of a file.
    std::fs::copy(&fourth.path, folder.join(".parking-left")).unwrap();
    assert_eq!(two.newest().unwrap(), Some(fourth.path));
}

#[test]
fn a_folder_knows_which_conversation_came_before() {
    let engine = engine(&tiny());
    let dir = tempfile::tempdir().unwrap();
    let parking = parking(dir.path());
    let mut session = engine.session(64, 8);
    generate(&mut session, &noise(1, 20), 4);
    let paths: Vec<PathBuf> = (0..3).map(|_| parking.save(&session, b"", None).unwrap().path).collect();
    let before = |of: &PathBuf| parking.before(of).unwrap();
    assert_eq!(
        (before(&paths[2]), before(&paths[1]), before(&paths[0])),
        (Some(paths[1].clone()), Some(paths[0].clone()), None)
    );
    // One that is damaged at its head is none to go on in.
    std::fs::write(&paths[1], "x").unwrap();
    let times = std::fs::FileTimes::new().set_modified(std::fs::metadata(&paths[0]).unwrap().modified().unwrap());
    std::fs::File::options().append(true).open(&paths[1]).unwrap().set_times(times).unwrap();
    assert_eq!(before(&paths[2]), Some(paths[0].clone()));
}

#[test]
fn a_folder_is_tried_before_there_is_anything_to_keep() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a/b");
    Parking::prepare(&folder).unwrap();
    Parking::prepare(&folder).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let text = Parking::prepare(&file).unwrap_err().to_string();
    assert!(text.contains("file: it is a file, and a folder is expected"), "{text}");
    let text = Parking::prepare(&file.join("x")).unwrap_err().to_string();
    assert!(text.starts_with("cannot make "), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_chat_goes_on_another_day() {
    let engine = engine(&nano());
    let dir = tempfile::tempdir().unwrap();
    let parking = Parking::new(dir.path(), ModelId::of(&nano()), LIMIT);
    let options = ChatOptions { think: Some(false), system: Some("Be brief.".into()) };
    let params = GenerateParams { max_tokens: 40, ..GenerateParams::default() };
    let ask = |chat: &mut Chat<'_, CpuOps>, text: &str| chat.ask(text, &params, &NEVER, &mut |_| ()).unwrap();
    let mut chat = Chat::new(engine.session(512, 64), options.clone());
    ask(&mut chat, "What is the capital of France?");
    let saved = parking.save(chat.session(), &chat.note(), None).unwrap();
    let second = ask(&mut chat, "What is the capital of Italy?");
    let mut later = Chat::new(engine.session(512, 64), ChatOptions { think: Some(false), system: None });
    later.resume(&parking, &saved.path).unwrap();
    assert_eq!((later.messages().len(), later.system()), (3, Some("Be brief.")));
    let resumed = ask(&mut later, "What is the capital of Italy?");
    assert_eq!((resumed.tokens, resumed.timings.cached_tokens), (second.tokens, second.timings.cached_tokens));
    assert_eq!(later.session().state().fingerprint(), chat.session().state().fingerprint());
}
