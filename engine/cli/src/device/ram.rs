//! How much memory this machine lets a program have.

/// What the system says, in bytes; `None` where it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ram {
    /// What can be taken without others being driven out.
    pub(crate) available: Option<u64>,
    /// The least limit of the control groups that this program is in.
    pub(crate) limit: Option<u64>,
    /// What may be locked in memory; `None` = all of it, or it is not known.
    pub(crate) lockable: Option<u64>,
}

impl Ram {
    /// Asks the system.
    pub(crate) fn here() -> Ram {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Ram {
            available: available(&text("/proc/meminfo")),
            limit: limit(&text("/proc/self/cgroup"), &|path| std::fs::read_to_string(path).ok()),
            lockable: lockable(&text("/proc/self/limits")),
        }
    }

    /// What a model may have.
    pub(crate) fn usable(&self) -> Option<u64> {
        self.available.into_iter().chain(self.limit).min()
    }
}

/// What a program can take without others being driven out.
pub(crate) fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the groups of a program, each within those above it.
fn limit(groups: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut at = path.trim().trim_end_matches('/');
    let mut least: Option<u64> = None;
    loop {
        let found = read(&format!("/sys/fs/cgroup{at}/memory.max")).and_then(|text| text.trim().parse().ok());
        least = least.into_iter().chain(found).min();
        match at.rsplit_once('/') {
            Some((above, _)) => at = above,
            None => return least,
        }
    }
}

/// The soft limit of locked memory.
fn lockable(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_available() {
        let meminfo = "MemTotal:       65636744 kB\nMemFree:         1 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(available(meminfo), Some(20_480_000_000));
        assert_eq!(available("MemAvailable: many kB"), None);
    }

    #[test]
    fn the_least_limit_of_all_groups_holds() {
        let read = |path: &str| match path {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("1000\n".to_owned()),
            "/sys/fs/cgroup/memory.max" => Some("2000\n".to_owned()),
            _ => None,
        };
        assert_eq!(limit("0::/a/b\n", &read), Some(1000));
        assert_eq!(limit("0::/\n", &read), Some(2000));
        assert_eq!(limit("4:memory:/a\n", &read), None);
        assert_eq!(Ram { available: Some(5), limit: Some(3), lockable: None }.usable(), Some(3));
        assert_eq!(Ram { available: Some(2), limit: None, lockable: None }.usable(), Some(2));
    }

    #[test]
    fn what_may_be_locked() {
        let head = "Limit                     Soft Limit           Hard Limit           Units     \n";
        let line =
            |soft: &str| format!("{head}Max locked memory         {soft}              8388608              bytes\n");
        assert_eq!(lockable(&line("8388608")), Some(8_388_608));
        assert_eq!(lockable(&line("unlimited")), None);
    }
}
