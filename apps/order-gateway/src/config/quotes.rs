//! `[quotes]`: the ring of a market-gateway, and the names of its feed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use market::Symbol;
use serde::Deserialize;
use toml::Spanned;

use super::Problem;

/// The section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotesSection {
    /// The ring in shared memory.
    ring: PathBuf,
    /// What the feed calls an instrument where that is not its symbol. By default nothing.
    #[serde(default)]
    names: BTreeMap<String, Spanned<String>>,
}

impl QuotesSection {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let wrong = self.names.values().find(|name| feed_name(name.get_ref()).is_none());
        let what = "a feed calls an instrument by 1 to 8 bytes, or by # and a number, such as \"#5485\" (CME)";
        wrong.map_or(Ok(()), |name| Err(Problem::new(name.span(), what)))
    }

    /// A name that is for none of these instruments.
    pub(super) fn unknown(&self, symbols: &[Symbol]) -> Option<&str> {
        let is_known = |name: &str| Symbol::new(name).is_some_and(|symbol| symbols.contains(&symbol));
        self.names.keys().map(String::as_str).find(|name| !is_known(name))
    }

    pub(super) fn names(&self, symbols: &[Symbol]) -> (PathBuf, Vec<Symbol>) {
        let name = |symbol: &Symbol| {
            let named = self.names.iter().find(|(name, _)| Symbol::new(name) == Some(*symbol));
            named.and_then(|(_, name)| feed_name(name.get_ref())).unwrap_or(*symbol)
        };
        (self.ring.clone(), symbols.iter().map(name).collect())
    }
}

/// A name, or the number of an instrument that its feed knows by number.
fn feed_name(text: &str) -> Option<Symbol> {
    match text.strip_prefix('#') {
        Some(number) => number.parse::<u32>().ok().map(|number| Symbol::from_number(number.into())),
        None => Symbol::new(text).filter(|symbol| *symbol != Symbol::NONE),
    }
}
