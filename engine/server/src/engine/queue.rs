//! Who is next: turns go round between clients, and within a client whoever came first is first.

use std::collections::VecDeque;

/// A queue that is fair between clients.
pub(super) struct Queue<T> {
    /// Clients that wait, the one whose turn it is first, each with what it waits for.
    clients: VecDeque<(String, VecDeque<T>)>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue { clients: VecDeque::new() }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.clients.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    /// Puts something at the end of a client's own line; a client that did not wait comes after those that do.
    pub(super) fn push(&mut self, client: &str, item: T) {
        match self.clients.iter_mut().find(|(name, _)| name == client) {
            Some((_, waiting)) => waiting.push_back(item),
            None => self.clients.push_back((client.to_owned(), VecDeque::from([item]))),
        }
    }

    /// Takes out whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (client, mut waiting) = self.clients.pop_front()?;
        let item = waiting.pop_front();
        if !waiting.is_empty() {
            self.clients.push_back((client, waiting));
        }
        item
    }

    /// Takes out what is not wanted any more.
    pub(super) fn remove(&mut self, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for (_, waiting) in &mut self.clients {
            let (gone, left): (VecDeque<T>, VecDeque<T>) = waiting.drain(..).partition(&unwanted);
            removed.extend(gone);
            *waiting = left;
        }
        self.clients.retain(|(_, waiting)| !waiting.is_empty());
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round() {
        let mut queue = Queue::new();
        for (client, item) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            queue.push(client, item);
        }
        assert_eq!(queue.len(), 6);
        assert_eq!([queue.pop(), queue.pop()], [Some(1), Some(4)]);
        // One that comes now comes after those that wait, once.
        queue.push("d", 7);
        let rest: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [5, 2, 6, 7, 3]);
    }

    #[test]
    fn who_leaves_takes_no_turn() {
        let mut queue = Queue::new();
        for (client, item) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            queue.push(client, item);
        }
        assert_eq!(queue.remove(|&item| item % 2 == 0), [2, 4]);
        assert_eq!((queue.len(), queue.pop(), queue.pop(), queue.pop()), (2, Some(1), Some(3), None));
    }
}
