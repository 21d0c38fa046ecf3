//! What a port of OUCH 5.0 says with each of its orders besides.

use order_entry::Text;
use order_entry::ouch::{AiqStrategy, CustomerType, PortOptions};
use serde::Deserialize;
use toml::Spanned;

use super::Problem;

/// Options of the port, none of which an order needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OuchSection {
    firm: Option<Spanned<String>>,
    customer: Option<CustomerWord>,
    route: Option<Spanned<String>>,
    group: Option<u16>,
    locate_broker: Option<Spanned<String>>,
    aiq: Option<Spanned<String>>,
    aiq_group: Option<u16>,
}

/// Who the customer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CustomerWord {
    Retail,
    NotRetail,
}

impl OuchSection {
    pub(super) fn check(&self) -> Result<(), Problem> {
        for (value, rule) in [
            (&self.firm, "a firm of OUCH has 1 to 4 bytes"),
            (&self.route, "a route of OUCH has 1 to 4 bytes"),
            (&self.locate_broker, "a broker of OUCH has 1 to 4 bytes"),
        ] {
            if let Some(value) = value.as_ref().filter(|value| name(value).is_none()) {
                return Err(Problem::new(value.span(), rule));
            }
        }
        match self.aiq.as_ref().filter(|word| letter(word).is_none()) {
            Some(word) => Err(Problem::new(word.span(), "a strategy of AIQ is one letter of the venue's document")),
            None => Ok(()),
        }
    }

    pub(super) fn options(&self) -> PortOptions {
        let text = |value: &Option<Spanned<String>>| value.as_ref().and_then(name);
        PortOptions {
            firm: text(&self.firm),
            customer_type: self.customer.map(|word| match word {
                CustomerWord::Retail => CustomerType::RETAIL,
                CustomerWord::NotRetail => CustomerType::NOT_RETAIL,
            }),
            route: text(&self.route),
            group: self.group,
            locate_broker: text(&self.locate_broker),
            aiq_strategy: self.aiq.as_ref().and_then(letter),
            aiq_group: self.aiq_group,
        }
    }
}

fn name(value: &Spanned<String>) -> Option<Text<4>> {
    Text::new(value.get_ref()).filter(|_| !value.get_ref().is_empty())
}

fn letter(value: &Spanned<String>) -> Option<AiqStrategy> {
    match value.get_ref().as_bytes() {
        [letter] if letter.is_ascii_alphanumeric() => Some(AiqStrategy(*letter)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> OuchSection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn each_key_is_an_option_of_the_port() {
        let all = section(
            r#"firm = "OTHR"
customer = "not-retail"
route = "SCAN"
group = 513
locate_broker = "BRKR"
aiq = "O"
aiq_group = 7"#,
        );
        all.check().unwrap();
        let expected = PortOptions {
            firm: Text::new("OTHR"),
            customer_type: Some(CustomerType::NOT_RETAIL),
            route: Text::new("SCAN"),
            group: Some(513),
            locate_broker: Text::new("BRKR"),
            aiq_strategy: Some(AiqStrategy(b'O')),
            aiq_group: Some(7),
        };
        assert_eq!(all.options(), expected);
        assert_eq!(section("").options(), PortOptions::default());
    }

    #[test]
    fn value_that_the_protocol_has_no_room_for_is_named_where_it_stands() {
        for text in ["route = \"SCANS\"", "route = \"\"", "firm = \"FIRMS\"", "locate_broker = \"\"", "aiq = \"OB\""] {
            let problem = section(text).check().unwrap_err();
            assert_eq!(problem.at.start, text.find('"').unwrap(), "{text}: {}", problem.what);
        }
    }
}
