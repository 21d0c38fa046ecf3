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
    /// The channel of the ring that an instrument comes by, where several have its name. By default
    /// nothing: one that two channels bring stays stale.
    #[serde(default)]
    channels: BTreeMap<String, u16>,
}

impl QuotesSection {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let mut names: Vec<_> = self.names.values().collect();
        names.sort_by_key(|name| name.span().start);
        let mut known = Vec::new();
        for name in names {
            let Some(symbol) = feed_name(name.get_ref()) else {
                let what = "a feed calls an instrument by 1 to 8 bytes, or by # and a number, such as \"#5485\" (CME)";
                return Err(Problem::new(name.span(), what));
            };
            if known.contains(&symbol) {
                let what = format!("{:?} is the feed's name of another instrument already", name.get_ref());
                return Err(Problem::new(name.span(), what));
            }
            known.push(symbol);
        }
        Ok(())
    }

    /// Two of these instruments that the feed would call by one name: that of one is the other's
    /// symbol.
    pub(super) fn namesakes(&self, symbols: &[Symbol]) -> Option<(Symbol, Symbol)> {
        let (_, names) = self.names(symbols);
        let earlier = |idx: usize| names[..idx].iter().position(|name| *name == names[idx]);
        (0..names.len()).find_map(|idx| earlier(idx).map(|other| (symbols[other], symbols[idx])))
    }

    /// A name that is for none of these instruments.
    pub(super) fn unknown(&self, symbols: &[Symbol]) -> Option<&str> {
        let is_known = |name: &str| Symbol::new(name).is_some_and(|symbol| symbols.contains(&symbol));
        self.names.keys().chain(self.channels.keys()).map(String::as_str).find(|name| !is_known(name))
    }

    /// The channel of each of these instruments that one is said of.
    pub(super) fn channels(&self, symbols: &[Symbol]) -> Vec<Option<u16>> {
        let of = |symbol: &Symbol| self.channels.iter().find(|(name, _)| Symbol::new(name) == Some(*symbol));
        symbols.iter().map(|symbol| of(symbol).map(|(_, channel)| *channel)).collect()
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
