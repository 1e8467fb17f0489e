//! `GET /v1/events`: the status again and again, for the monitor.

use super::status::report;
use crate::Root;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::IntervalStream;
use tokio_stream::{Stream, StreamExt};

/// Time from one event to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Tells how things stand once a second, until the server is to stop.
pub(crate) async fn handle(State(root): State<Root>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let events = IntervalStream::new(ticks).take_while({
        let stopping = root.stopping.clone();
        move |_| !*stopping.borrow()
    });
    // What is told can always be written as JSON; should it not be, an event without data is passed over by readers.
    Sse::new(events.map(move |_| {
        let event = Event::default().event("status");
        Ok(event.json_data(report(&root.app())).unwrap_or_default())
    }))
}
