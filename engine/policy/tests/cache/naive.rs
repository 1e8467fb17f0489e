//! The cache again, in the plainest way: one vector of entries, linear scans, no lists, no selection, no counters that
//! are kept up to date. Written from the rules' descriptions, to be compared with the fast one.

use strata_policy::cache::{Admission, CacheParams, Capacity, Change, Costs, Key, Rule, Scope, Shape};

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Coming(usize),
    Resident,
    Leaving,
}

#[derive(Debug, Clone)]
struct Entry {
    key: Key,
    state: State,
    /// Of S3-FIFO: in the main queue, and uses since insertion.
    main: bool,
    uses: u32,
    /// Position in its queue: larger is nearer the front.
    order: u64,
    /// Keys that leave when this lands.
    victims: Vec<Key>,
}

pub(crate) struct Naive {
    shape: Shape,
    params: CacheParams,
    costs: Costs,
    entries: Vec<Entry>,
    ghosts: Vec<(usize, Key)>,
    /// Pools from which something has left.
    evicting: Vec<usize>,
    /// What landed at this boundary.
    landed: Vec<Key>,
    /// Every access that counted, by round.
    history: Vec<Vec<Key>>,
    /// Of each key: count, fast and slow estimate, last use.
    count: Vec<f32>,
    fast: Vec<f32>,
    slow: Vec<f32>,
    last: Vec<u64>,
    clock: u64,
    boundaries: usize,
    since: u32,
    turn: usize,
    future: Vec<Key>,
    position: usize,
    pub(crate) changes: Vec<Change>,
    pub(crate) begun: usize,
}

impl Naive {
    pub(crate) fn new(shape: &Shape, params: &CacheParams, ranking: &[Key], future: &[Key]) -> Naive {
        let keys = shape.keys();
        let mut naive = Naive {
            shape: shape.clone(),
            params: *params,
            costs: Costs::by_size(shape),
            entries: Vec::new(),
            ghosts: Vec::new(),
            evicting: Vec::new(),
            landed: Vec::new(),
            history: Vec::new(),
            count: vec![0.0; keys],
            fast: vec![0.0; keys],
            slow: vec![0.0; keys],
            last: vec![0; keys],
            clock: 0,
            boundaries: 0,
            since: 0,
            turn: 0,
            future: future.to_vec(),
            position: 0,
            changes: Vec::new(),
            begun: 0,
        };
        for (i, &key) in ranking.iter().enumerate() {
            let order = (ranking.len() - i) as u64;
            naive.last[key as usize] = order;
            if naive.free(naive.pool(key)) >= naive.cost(key) {
                if let Rule::Saving { fast, slow, .. } = params.rule {
                    (naive.fast[key as usize], naive.slow[key as usize]) = (fast, slow);
                }
                naive.entries.push(Entry { key, state: State::Resident, main: true, uses: 0, order, victims: vec![] });
            }
        }
        naive.clock = ranking.len() as u64;
        naive
    }

    fn pool(&self, key: Key) -> usize {
        if self.params.scope == Scope::Global { 0 } else { self.shape.layer_of(key) }
    }

    fn cost(&self, key: Key) -> u64 {
        let by_bytes = matches!(self.params.capacity, Capacity::Bytes(_)) && self.params.rule != Rule::Infinite;
        if by_bytes { self.shape.bytes_of(key) } else { 1 }
    }

    fn room(&self, pool: usize) -> u64 {
        let all: u64 = (0..self.shape.keys() as Key).map(|key| self.cost(key)).sum();
        let total = match self.params.capacity {
            _ if self.params.rule == Rule::Infinite => all,
            Capacity::Slots(n) => all.min(n as u64),
            Capacity::Bytes(n) => all.min(n),
        };
        let pools = if self.params.scope == Scope::Global { 1 } else { self.shape.layers() as u64 };
        total / pools + u64::from((pool as u64) < total % pools)
    }

    fn free(&self, pool: usize) -> u64 {
        let taken = self.entries.iter().filter(|e| e.state != State::Leaving && self.pool(e.key) == pool);
        self.room(pool) - taken.map(|e| self.cost(e.key)).sum::<u64>()
    }

    fn find(&self, key: Key) -> Option<usize> {
        self.entries.iter().position(|e| e.key == key)
    }

    fn hits(&self, key: Key) -> bool {
        self.find(key).is_some_and(|i| !matches!(self.entries[i].state, State::Coming(_)))
    }

    pub(crate) fn residents(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = (0..self.shape.keys() as Key).filter(|&k| self.hits(k)).collect();
        keys.sort_unstable();
        keys
    }

    pub(crate) fn taken(&self) -> u64 {
        self.residents().iter().map(|&k| self.cost(k)).sum()
    }

    fn next_use(&self, key: Key) -> usize {
        let rest = self.future.get(self.position..).unwrap_or(&[]);
        rest.iter().position(|&k| k == key).map_or(usize::MAX, |i| self.position + i)
    }

    /// Uses expected within the horizon: shares of rounds, weighted by age, with one round before the first that used
    /// what was resident.
    fn uses(&self, key: Key) -> f32 {
        let Rule::Saving { fast, slow, burst, horizon, .. } = self.params.rule else { return 0.0 };
        let full = |decay: f32| (0..self.history.len()).fold(1.0, |full: f32, _| full * decay + 1.0);
        let (per_fast, per_slow) = (1.0 / full(fast), 1.0 / full(slow));
        let (quick, steady) = (self.fast[key as usize] * per_fast, self.slow[key as usize] * per_slow);
        let rounds = if fast == 1.0 { horizon } else { horizon.min(1.0 / (1.0 - fast)) };
        horizon * steady + burst * rounds * if quick > steady { quick - steady } else { 0.0 }
    }

    fn saved(&self, key: Key) -> f32 {
        self.uses(key) * self.costs.miss[self.shape.layer_of(key)] as f32
    }

    fn density(&self, key: Key) -> u32 {
        let miss = self.costs.miss[self.shape.layer_of(key)] as f32;
        (self.uses(key) * (miss / self.cost(key) as f32)).to_bits()
    }

    pub(crate) fn round(&mut self, accesses: &[Key], counts: bool) -> Vec<bool> {
        let hits: Vec<bool> = accesses.iter().map(|&k| self.hits(k)).collect();
        self.changes.clear();
        self.begun = 0;
        self.boundaries += 1;
        if !counts {
            self.position += accesses.len();
            self.land();
            return hits;
        }
        let mut missed = Vec::new();
        let mut seen: Vec<Key> = Vec::new();
        for &key in accesses {
            let state = self.find(key).map(|i| self.entries[i].state);
            let leaving = state == Some(State::Leaving);
            let forgets = matches!(self.params.rule, Rule::Lfu { remember: false, .. });
            if !(leaving && forgets) {
                self.count[key as usize] += 1.0;
                self.clock += 1;
                self.last[key as usize] = self.clock;
            }
            if !seen.contains(&key) {
                seen.push(key);
                self.fast[key as usize] += 1.0;
                self.slow[key as usize] += 1.0;
                if state.is_none() {
                    missed.push(key);
                }
            }
            if let Some(i) = self.find(key).filter(|_| !leaving) {
                self.entries[i].uses = (self.entries[i].uses + 1).min(3);
                if self.params.rule == Rule::Lru {
                    self.entries[i].order = self.clock;
                }
            }
            self.position += 1;
        }
        self.history.push(accesses.to_vec());
        self.land();
        self.decide(&missed);
        hits
    }

    fn land(&mut self) {
        let due = |s: State| matches!(s, State::Coming(at) if at <= self.boundaries);
        let mut landing: Vec<usize> = (0..self.entries.len()).filter(|&i| due(self.entries[i].state)).collect();
        landing.sort_by_key(|&i| match self.entries[i].state {
            State::Coming(at) => at,
            _ => unreachable!(),
        });
        let mut gone = Vec::new();
        self.landed = landing.iter().map(|&i| self.entries[i].key).collect();
        for i in landing {
            let (key, victims) = (self.entries[i].key, std::mem::take(&mut self.entries[i].victims));
            self.entries[i].state = State::Resident;
            self.report(Some(key), &victims);
            gone.extend(victims);
        }
        self.entries.retain(|e| !(e.state == State::Leaving && gone.contains(&e.key)));
    }

    fn report(&mut self, came: Option<Key>, left: &[Key]) {
        for (i, &key) in left.iter().enumerate() {
            let came = came.filter(|_| i + 1 == left.len());
            self.changes.push(Change { came, left: Some(key) });
        }
        if left.is_empty() && came.is_some() {
            self.changes.push(Change { came, left: None });
        }
    }

    fn used_now(&self, key: Key) -> bool {
        self.landed.contains(&key) || self.history.last().is_some_and(|round| round.contains(&key))
    }

    fn budget_left(&self) -> bool {
        let unlimited = self.params.rule == Rule::Infinite;
        unlimited || self.params.insert_budget.is_none_or(|most| self.begun < most as usize)
    }

    /// Residents of a pool that may leave, worst first by `rank`.
    fn idle(&self, pool: usize, rank: impl Fn(&Entry) -> (u64, u64)) -> Vec<Key> {
        let may = |e: &&Entry| e.state == State::Resident && !self.used_now(e.key) && self.pool(e.key) == pool;
        let mut idle: Vec<&Entry> = self.entries.iter().filter(may).collect();
        idle.sort_by_key(|e| (rank(e), e.key));
        idle.iter().map(|e| e.key).collect()
    }

    /// The worst that must leave for a key to fit; `None` if it cannot.
    fn leavers(&self, key: Key, rank: impl Fn(&Entry) -> (u64, u64)) -> Option<Vec<Key>> {
        let mut idle = self.idle(self.pool(key), rank).into_iter();
        let (mut leavers, mut units) = (Vec::new(), self.free(self.pool(key)));
        while units < self.cost(key) {
            let victim = idle.next()?;
            units += self.cost(victim);
            leavers.push(victim);
        }
        Some(leavers)
    }

    fn insert(&mut self, key: Key, victims: &[Key], main: bool) {
        let unlimited = self.params.rule == Rule::Infinite;
        let rounds = if unlimited { 0 } else { self.params.copy_rounds as usize };
        let wait = self.params.admission == Admission::WaitForCopy && rounds > 0;
        self.begun += 1;
        self.turn = self.shape.layer_of(key);
        self.clock += 1;
        let state = if rounds == 0 { State::Resident } else { State::Coming(self.boundaries + rounds) };
        let mut entry = Entry { key, state, main, uses: 0, order: self.clock, victims: vec![] };
        if wait {
            entry.victims = victims.to_vec();
            for e in self.entries.iter_mut().filter(|e| victims.contains(&e.key)) {
                e.state = State::Leaving;
            }
        } else {
            self.entries.retain(|e| !victims.contains(&e.key));
            self.report((rounds == 0).then_some(key), victims);
        }
        self.entries.push(entry);
    }

    /// Misses in the order in which a budget is spent on them.
    fn in_turn(&self, missed: &[Key]) -> Vec<Key> {
        let all = self.params.rule == Rule::Infinite
            || self.params.insert_budget.is_none_or(|most| missed.len() <= most as usize);
        let start = missed.iter().position(|&k| self.shape.layer_of(k) > self.turn).filter(|_| !all).unwrap_or(0);
        missed[start..].iter().chain(&missed[..start]).copied().collect()
    }

    fn decide(&mut self, missed: &[Key]) {
        match self.params.rule {
            Rule::Static | Rule::Infinite => {
                for key in self.in_turn(missed) {
                    if self.budget_left() && self.free(self.pool(key)) >= self.cost(key) {
                        self.insert(key, &[], false);
                    }
                }
            }
            Rule::Lru => {
                for key in self.in_turn(missed) {
                    let leavers = self.leavers(key, |e| (e.order, 0));
                    if let Some(leavers) = leavers.filter(|_| self.budget_left()) {
                        self.insert(key, &leavers, false);
                    }
                }
            }
            Rule::Lfu { decay, every, remember, bypass } => self.lfu(missed, decay, every, remember, bypass),
            Rule::Adaptive { .. } => self.adapt(),
            Rule::S3Fifo => self.s3(missed),
            Rule::Saving { fast, slow, copy, .. } => {
                let cost = |n: &Naive, k: Key| copy * n.costs.copy[n.shape.layer_of(k)] as f32;
                let mut wanted = missed.to_vec();
                wanted.sort_by_key(|&k| (u32::MAX - self.density(k), k));
                for key in wanted {
                    let leavers = self.leavers(key, |e| (u64::from(self.density(e.key)), 0));
                    let Some(leavers) = leavers.filter(|_| self.budget_left()) else { continue };
                    let lost: f32 = leavers.iter().map(|&k| self.saved(k)).sum();
                    if self.saved(key) - lost > cost(self, key) {
                        self.insert(key, &leavers, false);
                    }
                }
                self.fast.iter_mut().for_each(|v| *v = if *v * fast < 1e-12 { 0.0 } else { *v * fast });
                self.slow.iter_mut().for_each(|v| *v = if *v * slow < 1e-12 { 0.0 } else { *v * slow });
            }
            Rule::Belady { bypass } => {
                let mut wanted = missed.to_vec();
                wanted.sort_by_key(|&k| (self.next_use(k), k));
                for key in wanted {
                    let leavers = self.leavers(key, |e| ((usize::MAX - self.next_use(e.key)) as u64, 0));
                    let Some(leavers) = leavers.filter(|_| self.budget_left()) else { continue };
                    if !bypass || leavers.iter().all(|&k| self.next_use(k) > self.next_use(key)) {
                        self.insert(key, &leavers, false);
                    }
                }
            }
        }
    }

    fn lfu(&mut self, missed: &[Key], decay: f32, every: u32, remember: bool, bypass: bool) {
        let mut wanted = missed.to_vec();
        let value = |n: &Naive, k: Key| (u64::from(n.count[k as usize].to_bits()), n.last[k as usize]);
        wanted.sort_by_key(|&k| value(self, k));
        for key in wanted.into_iter().rev() {
            let leavers = self.leavers(key, |e| value(self, e.key));
            let Some(leavers) = leavers.filter(|_| self.budget_left()) else { continue };
            if bypass && leavers.iter().any(|&k| self.count[k as usize] > self.count[key as usize]) {
                continue;
            }
            self.insert(key, &leavers, false);
        }
        if !remember {
            for key in 0..self.count.len() {
                let inside = self.entries.iter().any(|e| e.key as usize == key && e.state != State::Leaving);
                self.count[key] = if inside { self.count[key] } else { 0.0 };
            }
        }
        self.since += 1;
        if self.since >= every {
            self.since = 0;
            self.count.iter_mut().for_each(|v| *v = if *v * decay < 1e-12 { 0.0 } else { *v * decay });
        }
    }

    fn adapt(&mut self) {
        let Rule::Adaptive { every, swaps, min_use, gain, decay } = self.params.rule else { unreachable!() };
        self.since += 1;
        let copying = self.entries.iter().any(|e| matches!(e.state, State::Coming(_)));
        if self.since < every || copying {
            return;
        }
        self.since = 0;
        let mut missing: Vec<Key> = (0..self.shape.keys() as Key).collect();
        missing.retain(|&k| self.find(k).is_none() && self.count[k as usize] >= min_use);
        missing.sort_by(|&a, &b| self.count[b as usize].total_cmp(&self.count[a as usize]).then(a.cmp(&b)));
        let mut pairs = Vec::new();
        for layer in 0..self.shape.layers() {
            let mut here: Vec<Key> =
                self.entries.iter().filter(|e| e.state == State::Resident).map(|e| e.key).collect();
            here.retain(|&k| self.shape.layer_of(k) == layer && !self.used_now(k));
            here.sort_by(|&a, &b| self.count[a as usize].total_cmp(&self.count[b as usize]).then(a.cmp(&b)));
            let new = missing.iter().copied().filter(|&k| self.shape.layer_of(k) == layer);
            for (k, v) in new.zip(here) {
                if self.count[k as usize] >= self.count[v as usize] + gain {
                    pairs.push((self.count[k as usize] - self.count[v as usize], k, v));
                }
            }
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut done = 0;
        for key in missing {
            if done < swaps && self.budget_left() && self.free(self.pool(key)) >= self.cost(key) {
                self.insert(key, &[], false);
                done += 1;
            }
        }
        for (_, key, victim) in pairs {
            if done < swaps && self.budget_left() && self.find(key).is_none() {
                self.insert(key, &[victim], false);
                done += 1;
            }
        }
        self.count.iter_mut().for_each(|v| *v = if *v * decay < 1e-12 { 0.0 } else { *v * decay });
    }

    fn s3(&mut self, missed: &[Key]) {
        for key in self.in_turn(missed) {
            let pool = self.pool(key);
            let idle: u64 = self.idle(pool, |_| (0, 0)).iter().map(|&k| self.cost(k)).sum();
            if !self.budget_left() || self.free(pool) + idle < self.cost(key) {
                continue;
            }
            let known = self.ghosts.iter().position(|&(_, k)| k == key);
            if let Some(i) = known {
                self.ghosts.remove(i);
            }
            let mut victims = Vec::new();
            let promised = |n: &Naive, victims: &[Key]| victims.iter().map(|&k| n.cost(k)).sum::<u64>();
            while self.free(pool) + promised(self, &victims) < self.cost(key) {
                let victim = self.s3_victim(pool, &victims);
                victims.push(victim);
                self.evicting.push(pool);
            }
            let small = self.entries.iter().filter(|e| {
                e.state != State::Leaving && self.pool(e.key) == pool && !victims.contains(&e.key) && !e.main
            });
            let small: u64 = small.map(|e| self.cost(e.key)).sum();
            let filling = !self.evicting.contains(&pool) && small >= self.room(pool) / 10;
            self.insert(key, &victims, known.is_some() || filling);
        }
    }

    fn s3_victim(&mut self, pool: usize, chosen: &[Key]) -> Key {
        let main_room = self.room(pool) - self.room(pool) / 10;
        let mut kept = 0;
        let mut turn = None;
        let all: u64 = self
            .entries
            .iter()
            .filter(|e| e.state != State::Leaving && self.pool(e.key) == pool && !chosen.contains(&e.key))
            .map(|e| self.cost(e.key))
            .sum();
        loop {
            let queued = |e: &&Entry| e.state != State::Leaving && self.pool(e.key) == pool && !chosen.contains(&e.key);
            let units = |main: bool| -> u64 {
                self.entries.iter().filter(queued).filter(|e| e.main == main).map(|e| self.cost(e.key)).sum()
            };
            let main = match turn {
                None => units(true) > main_room || units(false) == 0,
                Some(main) => {
                    if units(main) == 0 {
                        !main
                    } else {
                        main
                    }
                }
            };
            turn = Some(main);
            let may = |e: &Entry| e.state == State::Resident && !self.used_now(e.key);
            if kept > all {
                let rest = self.entries.iter().filter(queued).filter(|e| may(e));
                return rest.min_by_key(|e| (e.main, e.order)).unwrap().key;
            }
            let oldest = self.entries.iter().filter(queued).filter(|e| e.main == main).min_by_key(|e| e.order);
            let i = self.find(oldest.unwrap().key).unwrap();
            let may = may(&self.entries[i]);
            let cost = self.cost(self.entries[i].key);
            let e = &mut self.entries[i];
            self.clock += 1;
            if !may {
                kept += cost;
                e.order = self.clock;
            } else if !main && e.uses >= 2 {
                (e.uses, e.main, e.order) = (0, true, self.clock);
            } else if main && e.uses > 0 {
                (e.uses, e.order) = (e.uses - 1, self.clock);
            } else {
                let key = e.key;
                if !main {
                    self.ghosts.push((pool, key));
                    let size =
                        |n: &Naive| -> u64 { n.ghosts.iter().filter(|g| g.0 == pool).map(|&(_, k)| n.cost(k)).sum() };
                    while size(self) > self.room(pool) * 9 / 10 {
                        let oldest = self.ghosts.iter().position(|g| g.0 == pool).unwrap();
                        self.ghosts.remove(oldest);
                    }
                }
                return key;
            }
        }
    }
}
