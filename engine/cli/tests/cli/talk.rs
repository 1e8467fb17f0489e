//! `strata run` without a prompt: a conversation on a terminal, and what is kept of it however it ends.

use crate::common::{run, strata};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const QUESTION: &str = "What is the capital of France?\r";
/// More than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A conversation, and whoever sits before it.
struct Talk {
    keys: File,
    screen: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    /// Bytes of the screen that were looked at.
    at: usize,
    folder: tempfile::TempDir,
}

impl Talk {
    fn start(more: &[&str]) -> Talk {
        let folder = tempfile::tempdir().unwrap();
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let screen = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let chats = folder.path().join("chats");
        let args = [&["run", "--threads", "1", "--park", chats.to_str().unwrap()], more].concat();
        let side = || screen.try_clone().unwrap();
        let mut command = strata(&args);
        command.env("TERM", "xterm").env("XDG_STATE_HOME", folder.path()).env("NO_COLOR", "1");
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let keys = File::from(master);
        let (mut from, seen) = (keys.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        let mut talk = Talk { keys, screen, child, seen, at: 0, folder };
        talk.until("/help lists commands");
        talk.until("> ");
        talk
    }

    fn keys(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits until the screen shows a text behind what was waited for before.
    fn until(&mut self, text: &str) {
        let began = Instant::now();
        loop {
            let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()[self.at..]).into_owned();
            if let Some(found) = seen.find(text) {
                self.at += found + text.len();
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {text:?} in {seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&mut self) {
        self.keys(QUESTION.as_bytes());
        self.until("Paris.");
        self.until("answer 8 tokens");
        self.until("> ");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Whether the terminal shows what is typed, as it does unless a program edits lines itself.
    fn echoes(&self) -> bool {
        tcgetattr(&self.screen).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// The exit code, and the conversations that were kept.
    fn end(mut self) -> (Option<i32>, Kept) {
        let code = self.child.wait().unwrap().code();
        assert!(self.echoes(), "the terminal is left as it was");
        let shown = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
        assert!(!shown.contains("panicked"), "{shown}");
        (code, Kept(self.folder))
    }
}

struct Kept(tempfile::TempDir);

impl Kept {
    fn folder(&self) -> PathBuf {
        self.0.path().join("chats")
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder()).map_or(0, Iterator::count)
    }
}

/// Tokens that going on with the last conversation need not read.
fn known(folder: &Path) -> u64 {
    let r = run(&["run", "--json", "--resume", "--park", folder.to_str().unwrap(), "And of Italy?"]);
    assert_eq!(r.code, Some(0), "{}", r.err);
    let v: serde_json::Value = serde_json::from_str(&r.out).unwrap();
    v["timings"]["cached_tokens"].as_u64().unwrap()
}

#[test]
fn bytes_that_are_no_text_cost_a_line_and_no_conversation() {
    let mut talk = Talk::start(&[]);
    talk.ask();
    talk.keys(b"caf\xff");
    talk.until("not UTF-8");
    talk.until("> ");
    talk.keys(b"/quit\r");
    talk.until("kept in");
    let (code, kept) = talk.end();
    assert_eq!((code, kept.files()), (Some(0), 1));
    assert!(known(&kept.folder()) > 19);
    assert!(kept.0.path().join("strata/history").is_file());
}

#[test]
fn an_empty_conversation_is_not_kept() {
    let mut talk = Talk::start(&[]);
    talk.ask();
    talk.keys(b"/undo\r");
    talk.until("taken back");
    talk.keys(b"/quit\r");
    let (code, kept) = talk.end();
    assert_eq!((code, kept.files()), (Some(0), 0));

    // Nor does one hide that which was left by /clear.
    let mut talk = Talk::start(&[]);
    talk.ask();
    talk.keys(b"/clear\r");
    talk.until("kept in");
    talk.until("new conversation");
    talk.keys(b"/quit\r");
    let (code, kept) = talk.end();
    assert_eq!((code, kept.files()), (Some(0), 1));
    assert!(known(&kept.folder()) > 19);
}

#[test]
fn whoever_ends_the_program_the_conversation_is_kept() {
    for (signal, code) in [("-TERM", 143), ("-HUP", 129)] {
        let mut talk = Talk::start(&[]);
        talk.ask();
        assert!(!talk.echoes());
        talk.signal(signal);
        talk.until("kept in");
        let (ended, kept) = talk.end();
        assert_eq!((ended, kept.files()), (Some(code), 1), "{signal}");
        assert!(known(&kept.folder()) > 19);
    }
    // While it answers: the answer is kept as far as it came.
    let mut talk = Talk::start(&["--max-tokens", "4000", "--temp", "2", "--seed", "1"]);
    talk.keys(b"Tell me a long story.\r");
    // Control characters aside, what was typed is on the screen before the first word of the answer.
    talk.until("story.");
    std::thread::sleep(Duration::from_millis(300));
    talk.signal("-TERM");
    talk.until("kept in");
    let (ended, kept) = talk.end();
    assert_eq!((ended, kept.files()), (Some(143), 1));
}
