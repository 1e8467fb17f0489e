//! The CPU time a control group allows, versions 1 and 2.

use std::path::{Component, Path, PathBuf};

/// The smallest quota of this process's control group and those around it, in CPUs.
pub(super) fn read(root: &Path) -> Option<f64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut smallest: Option<f64> = None;
    for line in groups.lines() {
        // hierarchy:controllers:path; version 2 is hierarchy 0 without controllers.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        let default = if v2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" };
        let (mounted, at) = mount(&mounts, v2).unwrap_or(("/", default));
        for folder in folders(&root.join(at.trim_start_matches('/')), mounted, group) {
            let found = if v2 { v2_quota(&folder) } else { v1_quota(&folder) };
            smallest = match (smallest, found) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }
    smallest
}

/// Where the hierarchy is mounted: the group that is its root there, and the folder.
fn mount(mounts: &str, v2: bool) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        // id parent device ROOT FOLDER options... - TYPE source SUPEROPTIONS
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or(""));
        let ours = if v2 { kind == "cgroup2" } else { kind == "cgroup" && options.split(',').any(|o| o == "cpu") };
        let mut before = before.split(' ').skip(3);
        ours.then_some((before.next()?, before.next()?))
    })
}

/// The group's folder and those around it, up to the mount. In a container the group's path may be the host's, of
/// which nothing but the mount itself is visible.
fn folders(mount: &Path, mounted: &str, group: &str) -> Vec<PathBuf> {
    let group = Path::new(group);
    let inside = group.strip_prefix(mounted).or_else(|_| group.strip_prefix("/")).unwrap_or(group);
    let mut folder = mount.to_owned();
    let mut all = vec![folder.clone()];
    for part in inside.components() {
        if let Component::Normal(name) = part {
            folder.push(name);
            all.push(folder.clone());
        }
    }
    all
}

/// `cpu.max`: quota (or `max`) and period in microseconds.
fn v2_quota(folder: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(folder.join("cpu.max")).ok()?;
    let mut fields = text.split_whitespace();
    ratio(fields.next()?, fields.next()?)
}

/// The same in two files, where a quota of -1 means none.
fn v1_quota(folder: &Path) -> Option<f64> {
    let read = |name| std::fs::read_to_string(folder.join(name)).ok();
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.trim().parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}
