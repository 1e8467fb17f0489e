//! Settings of the engine: each knob is defined once.
//!
//! A setting that has to be spelled in a parser, a file format, a help text and a manual is spelled differently in one
//! of them sooner or later. Here a [`Knob`] is one static value in the [registry](KNOBS); whoever needs a flag, a TOML
//! key, an environment variable, a help line or the axis of a sweep derives it from there. This crate parses no command
//! lines: binaries build their flags from [`shown_by`].
//!
//! Values come from five sources, each a [`Layer`]: flags, `STRATA_` variables, a `strata.toml`, what the model file
//! suggests about itself, and `defaults.toml` in this crate. [`Settings::resolve`] lets the first source that has an
//! opinion win, and remembers which it was.
//!
//! ```
//! use strata_config::{Layer, Origin, Settings, find};
//!
//! let mut flags = Layer::empty(Origin::Flag);
//! let knob = find("sampling.temp").unwrap();
//! flags.set(knob, knob.parse_flag("0.7")?);
//! let file = Layer::from_toml("strata.toml", "[sampling]\ntemp = 1.0\ntop_k = 40")?;
//! let settings = Settings::resolve(flags, Layer::empty(Origin::Env), file, Layer::empty(Origin::Model))?;
//! assert_eq!((settings.sampling.temp, settings.sampling.top_k), (0.7, 40));
//! assert_eq!(settings.origin(knob), Some(&Origin::Flag));
//! # Ok::<(), strata_config::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod hardware;
mod knob;
mod layer;
mod nearest;
pub mod registry;
mod settings;

pub use error::ConfigError;
pub use hardware::HardwareProfile;
pub use knob::{Kind, Knob, Value, Verb};
pub use layer::{Layer, Origin};
pub use nearest::nearest;
pub use registry::{KNOBS, find, shown_by};
pub use settings::{Cache, Chat, Engine, Experts, Sampling, Server, Settings, Speculation};
