//! One call of a tool.

use super::control::{Control, Later, Step, Told};
use super::desk::{Desk, Via};
use super::progress::Progress;
use crate::App;
use crate::api::ask::model;
use crate::backend::{Refusal, RefusalKind, State};
use crate::blocking::blocking;
use crate::http::security::Caller;
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often it is looked how far something is.
const LOOK: Duration = Duration::from_millis(50);
/// How often a client is told that something goes on.
const ALIVE: Duration = Duration::from_secs(2);

/// A call: what was asked, by whom, and what there is to answer it with.
pub(super) struct Call {
    pub(super) desk: Desk,
    pub(super) arguments: JsonObject,
    pub(super) caller: Caller,
    pub(super) progress: Progress,
}

impl Call {
    /// The arguments as a tool has them.
    ///
    /// # Errors
    /// One of them is missing, wrong or unknown, as a sentence with its name.
    pub(super) fn arguments<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_path_to_error::deserialize(Value::Object(self.arguments.clone())).map_err(|e| {
            let at = e.path().to_string();
            let what = plain(e.into_inner().to_string());
            if at == "." { format!("the arguments are wrong: {what}") } else { format!("{at} is wrong: {what}") }
        })
    }

    pub(super) fn control(&self) -> Arc<dyn Control> {
        Arc::clone(&self.desk.control)
    }

    /// Whether the client is served over HTTP.
    pub(super) fn over_http(&self) -> bool {
        self.desk.via == Via::Http
    }

    /// What answers, once it is loaded.
    ///
    /// # Errors
    /// It cannot be loaded, or takes no requests.
    pub(super) async fn ready(&mut self) -> Result<App, String> {
        loop {
            let app = self.desk.root.app();
            match app.backend.state() {
                State::Ready => return Ok(app),
                // Somebody else may be about to load one, so it is looked again.
                State::Empty => {
                    let control = self.control();
                    let begin = move || control.begin().map_err(|why| Refusal::new(RefusalKind::Engine, why));
                    blocking(begin).await.map_err(|refusal| refusal.message)?;
                }
                State::Loading { share } => {
                    let text = format!("loading the model: {:.0} %", share * 100.0);
                    self.progress.tell(share.into(), None, &text).await;
                }
                State::Failed(_) | State::Stopping => {
                    return model(&app).map(|_| app).map_err(|refusal| refusal.message);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for something, and tells the client how far it is: by its share, or by the seconds that went by.
    ///
    /// # Errors
    /// Its own.
    pub(super) async fn attend<T>(&mut self, begin: impl FnOnce(&dyn Control, Told) -> Later<T>) -> Result<T, String> {
        let (told, mut steps) = watch::channel(Step::default());
        let mut work = begin(&*self.desk.control, told);
        let since = Instant::now();
        loop {
            tokio::select! {
                done = &mut work => return done,
                changed = steps.changed() => if changed.is_err() {
                    // Nothing more is told, so there is only the end to wait for.
                    return work.await;
                },
                () = tokio::time::sleep(ALIVE) => {}
            }
            let Step { share, text } = steps.borrow_and_update().clone();
            let seconds = since.elapsed().as_secs_f64();
            match share {
                Some(share) => self.progress.tell(share.into(), Some(1.0), &text).await,
                None => self.progress.tell(seconds, None, &format!("{seconds:.0} s: {text}")).await,
            }
        }
    }
}

/// What serde says of a wrong value, without names of types that only programmers know.
fn plain(what: String) -> String {
    let kinds =
        [("u64", "a whole number of at least 0"), ("u16", "a whole number from 0 to 65535"), ("f32", "a number")];
    for (kind, words) in kinds {
        if let Some(found) = what.strip_suffix(kind).filter(|found| found.ends_with("expected ")) {
            return format!("{found}{words}");
        }
    }
    what
}
