//! Values that flags and files of feeds have: a group, and the probability of a fault.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IPv4 multicast group that a feed may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Group(Ipv4Addr);

impl Group {
    /// The groups of lines A and B where none are given: RFC 6676 keeps 233.252.0.0/24 for
    /// examples.
    pub const EXAMPLES: [Self; 2] = [Self(Ipv4Addr::new(233, 252, 0, 1)), Self(Ipv4Addr::new(233, 252, 0, 2))];

    /// The address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.0
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const RANGE: &str = "use 224.0.1.0 to 239.255.255.255, for example 233.252.0.1";
        let address: Ipv4Addr = text.parse().map_err(|_| format!("not an IPv4 address; {RANGE}"))?;
        if !address.is_multicast() {
            return Err(format!("not a multicast address; {RANGE}"));
        }
        // RFC 5771 section 4: reserved for routing protocols.
        if address.octets()[..3] == [224, 0, 0] {
            return Err(format!("224.0.0.0/24 is kept for routing protocols; {RANGE}"));
        }
        Ok(Self(address))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Group {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Group> for String {
    fn from(group: Group) -> Self {
        group.to_string()
    }
}

/// The probability of a fault: `0.001` and `0.1%` are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64")]
pub struct Probability(f64);

impl Probability {
    /// From 0.0 to 1.0.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(percent) => (percent, 100.0),
            None => (text, 1.0),
        };
        let value: f64 = number.trim().parse().map_err(|_| format!("not a number; {PROBABILITY_FORM}"))?;
        Self::try_from(value / scale)
    }
}

const PROBABILITY_FORM: &str = "use a probability from 0 to 1 such as 0.001, or a percentage such as 0.1%";

impl TryFrom<f64> for Probability {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if !(0.0..=1.0).contains(&value) {
            return Err(format!("outside of 0 to 1; {PROBABILITY_FORM}"));
        }
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused<T: FromStr<Err = String>>(text: &str, because: &str) {
        let error = text.parse::<T>().err().unwrap_or_else(|| panic!("'{text}' was accepted"));
        assert!(error.contains(because), "'{text}': {error}");
    }

    #[test]
    fn group_that_is_not_multicast_is_refused() {
        refused::<Group>("10.0.0.1", "not a multicast");
        refused::<Group>("240.0.0.1", "not a multicast");
        refused::<Group>("224.0.0.18", "routing protocols");
        refused::<Group>("ff02::1", "not an IPv4");
        assert!("224.0.1.0".parse::<Group>().is_ok());
        assert!("239.255.255.255".parse::<Group>().is_ok());
    }

    #[test]
    fn probability_reads_fractions_and_percentages() {
        assert_eq!("0.1%".parse::<Probability>().unwrap(), "0.001".parse().unwrap());
        assert_eq!("100%".parse::<Probability>().unwrap().get(), 1.0);
        refused::<Probability>("1.5", "outside");
        refused::<Probability>("101%", "outside");
        refused::<Probability>("-1%", "outside");
        refused::<Probability>("nan", "outside");
        refused::<Probability>("few", "not a number");
        refused::<Probability>("%", "not a number");
    }
}
