//! How often each expert of each layer was used: a small JSON file that says which experts a GPU should hold.

use crate::output;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use strata_gguf::show_path;
use strata_trace::Trace;

/// What the file says it is.
const FORMAT: &str = "strata-expert-profile";
const VERSION: u32 = 1;

/// Bytes of the longest file that is read: some hundred layers of some thousand experts.
const LONGEST: u64 = 64 << 20;

/// Uses of experts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    format: String,
    version: u32,
    /// The model's name, for people.
    model: String,
    /// Tokens that were counted.
    tokens: u64,
    /// `[layers][experts]`
    counts: Vec<Vec<u64>>,
}

impl Profile {
    /// Counts the experts of all tokens of a trace that were kept, prompts included.
    pub(crate) fn of(trace: &Trace) -> Profile {
        let meta = &trace.meta;
        let mut counts = vec![vec![0u64; meta.experts]; meta.layers];
        let mut tokens = 0;
        let per_token = (meta.layers * meta.used).max(1);
        for (token, ids) in trace.tokens.iter().zip(trace.ids.chunks_exact(per_token)) {
            if !token.committed {
                continue;
            }
            tokens += 1;
            for (counts, ids) in counts.iter_mut().zip(ids.chunks_exact(meta.used.max(1))) {
                for &id in ids {
                    if let Some(count) = counts.get_mut(usize::from(id)) {
                        *count += 1;
                    }
                }
            }
        }
        Profile { format: FORMAT.into(), version: VERSION, model: meta.model.name.clone(), tokens, counts }
    }

    /// Tokens that were counted.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// As text.
    ///
    /// # Errors
    /// None that is known of.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Reads a file for a model of so many layers and experts.
    ///
    /// # Errors
    /// It cannot be read, is no profile, or one of another model.
    pub(crate) fn read(path: &Path, layers: usize, experts: usize) -> Result<Profile> {
        let what = || format!("cannot read the expert profile {}", show_path(path));
        let mut text = String::new();
        let file = std::fs::File::open(path).with_context(what)?;
        file.take(LONGEST + 1).read_to_string(&mut text).with_context(what)?;
        if text.len() as u64 > LONGEST {
            bail!("{}: it is longer than {}, expected an expert profile", show_path(path), output::bytes(LONGEST));
        }
        Profile::parse(&text, layers, experts).with_context(what)
    }

    fn parse(text: &str, layers: usize, experts: usize) -> Result<Profile> {
        let profile: Profile = serde_json::from_str(text)
            .map_err(|e| anyhow::anyhow!("{e}, expected a file of `strata trace profile`"))?;
        if profile.format != FORMAT || profile.version != VERSION {
            let (format, version) = (strata_gguf::show_text(&profile.format), profile.version);
            bail!("found format {format:?} version {version}, expected {FORMAT:?} version {VERSION}");
        }
        if profile.counts.len() != layers {
            bail!("found {} layers, expected {layers} as the model has", profile.counts.len());
        }
        if let Some((layer, counts)) = profile.counts.iter().enumerate().find(|(_, counts)| counts.len() != experts) {
            bail!("found {} experts in layer {layer}, expected {experts} as the model has", counts.len());
        }
        Ok(profile)
    }

    /// Pairs of a layer and an expert, those used most first; among equals equally many of each layer.
    pub(crate) fn ranking(&self) -> Vec<(usize, usize)> {
        let experts = self.counts.first().map_or(0, Vec::len);
        let mut pairs: Vec<(usize, usize)> = strata_model::plan::in_turn(self.counts.len(), experts).collect();
        let uses = |&(layer, expert): &(usize, usize)| self.counts.get(layer).and_then(|c| c.get(expert)).copied();
        pairs.sort_by_key(|pair| std::cmp::Reverse(uses(pair)));
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(counts: &str) -> String {
        format!(r#"{{"format":"strata-expert-profile","version":1,"model":"m","tokens":3,"counts":{counts}}}"#)
    }

    #[test]
    fn the_most_used_come_first_and_layers_take_turns() {
        let read = Profile::parse(&profile("[[1,5,0],[1,0,7]]"), 2, 3).unwrap();
        assert_eq!(read.ranking(), [(1, 2), (0, 1), (0, 0), (1, 0), (1, 1), (0, 2)]);
        assert_eq!(Profile::parse(&read.to_json().unwrap(), 2, 3).unwrap(), read);
    }

    #[test]
    fn other_files_are_refused() {
        let refused = |text: &str| Profile::parse(text, 2, 3).unwrap_err().to_string();
        assert!(refused("{}").contains("expected a file of `strata trace profile`"));
        assert_eq!(refused(&profile("[[1,2,3]]")), "found 1 layers, expected 2 as the model has");
        assert_eq!(refused(&profile("[[1,2,3],[1]]")), "found 1 experts in layer 1, expected 3 as the model has");
        let other = profile("[]").replace("\"version\":1", "\"version\":2");
        assert!(refused(&other).ends_with("expected \"strata-expert-profile\" version 1"));
        assert!(refused(&profile("[[-1,2,3],[1,2,3]]")).contains("expected a file"));
    }
}
