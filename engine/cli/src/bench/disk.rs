//! How fast a disk reads a file, past what the system holds of it in memory.

use super::hardware::gb_s;
use super::report::Series;
use super::stats::Random;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use strata_gguf::show_path;

/// The part of the file that is read, at most.
const MOST: u64 = 1 << 30;

/// The smallest file: less would be over before a disk shows its speed.
const LEAST: u64 = 1 << 20;

/// Bytes of one read on the way through the file.
const PIECE: usize = 8 << 20;

/// Bytes of a read from any place, and how many there are.
const BLOCK: usize = 4096;
const BLOCKS: usize = 512;

/// Refuses what cannot be measured.
///
/// # Errors
/// The file is not there, not a regular file or too small, or the system cannot be told to forget it.
pub(crate) fn check(path: &Path) -> Result<()> {
    let what = std::fs::metadata(path).with_context(|| format!("cannot read {}", show_path(path)))?;
    if !what.is_file() || what.len() < LEAST {
        bail!("{} is no regular file of at least 1 MiB, which --disk reads", show_path(path));
    }
    if !cfg!(target_os = "linux") {
        bail!("--disk needs Linux, where a program can have the system forget a file before it reads it");
    }
    Ok(())
}

/// GB/s of reading a file from its start, `repetitions` times, and microseconds of 4 KiB from any place of it, one at a
/// time. Before each pass the system is told to forget the file.
pub(crate) fn measure(path: &Path, repetitions: usize, cancel: &AtomicBool) -> Result<(Series, Series)> {
    let failed = || format!("cannot read {}", show_path(path));
    let mut file = File::open(path).with_context(failed)?;
    let bytes = file.metadata().with_context(failed)?.len();
    // What is not on the disk yet cannot be forgotten.
    file.sync_all().ok();
    let mut piece = vec![0; PIECE];
    let mut rates = Vec::new();
    for _ in 0..repetitions {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        forget(&file, false).with_context(failed)?;
        file.rewind().with_context(failed)?;
        let (mut read, start) = (0, Instant::now());
        while read < bytes.min(MOST) {
            let part = file.read(&mut piece).with_context(failed)?;
            if part == 0 {
                break;
            }
            read += part as u64;
        }
        rates.push(gb_s(read, start.elapsed()));
    }
    forget(&file, true).with_context(failed)?;
    let mut random = Random::new(1);
    let mut times = Vec::new();
    for _ in 0..BLOCKS {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let at = random.below((bytes / BLOCK as u64) as usize) as u64 * BLOCK as u64;
        let start = Instant::now();
        file.seek(SeekFrom::Start(at)).with_context(failed)?;
        file.read_exact(&mut piece[..BLOCK]).with_context(failed)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    if rates.is_empty() || times.is_empty() {
        return Err(crate::exit::Interrupted.into());
    }
    Ok((Series::new("disk", "GB/s", rates)?, Series::new("disk, 4 KiB", "us", times)?))
}

/// Has the system forget what it holds of a file, and tells it whether any place or the next will be read.
#[cfg(target_os = "linux")]
fn forget(file: &File, random: bool) -> std::io::Result<()> {
    use rustix::fs::{Advice, fadvise};
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(fadvise(file, 0, None, if random { Advice::Random } else { Advice::Sequential })?)
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &File, _: bool) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_measured_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        std::fs::write(&small, [0; 100]).unwrap();
        for path in [small.as_path(), dir.path()] {
            assert!(check(path).unwrap_err().to_string().contains("is no regular file of at least 1 MiB"));
        }
        assert!(check(&dir.path().join("none")).unwrap_err().to_string().starts_with("cannot read "));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_is_read_as_often_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; 2 << 20]).unwrap();
        check(&path).unwrap();
        let (read, random) = measure(&path, 3, &AtomicBool::new(false)).unwrap();
        assert_eq!((read.samples.len(), random.samples.len()), (3, BLOCKS));
        assert!(measure(&path, 3, &AtomicBool::new(true)).is_err());
    }
}
