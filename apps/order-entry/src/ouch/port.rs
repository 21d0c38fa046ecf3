//! Options of OUCH 5.0 that a port says with each of its orders.

use arrayvec::ArrayVec;

use super::v50::Field;
use super::{AiqStrategy, CustomerType, YesNo};
use crate::Text;

/// The options of a port, which stand in each of its orders and replaces. What is not said is as
/// the venue has set it for the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortOptions {
    /// The firm that trades, where it is not the account's own. By default not said.
    pub firm: Option<Text<4>>,
    /// Whether orders are retail ones. By default not said.
    pub customer_type: Option<CustomerType>,
    /// The routing strategy. By default not said.
    pub route: Option<Text<4>>,
    /// The customer's group, for mass cancels. By default not said.
    pub group: Option<u16>,
    /// Where the shares that are sold short were located. Sales that are not short do not say it.
    /// By default not said.
    pub locate_broker: Option<Text<4>>,
    /// What happens to orders of one owner that would trade, by the venue's letter. By default not
    /// said.
    pub aiq_strategy: Option<AiqStrategy>,
    /// The orders that count as one owner's. By default not said.
    pub aiq_group: Option<u16>,
}

/// Options as an order says them.
pub(super) type PortFields = ArrayVec<Field<'static>, 8>;

impl PortOptions {
    /// Bytes of all, each with its length and its tag.
    pub(super) const LEN_MAX: usize = 6 + 3 + 6 + 4 + 3 + 6 + 3 + 4;

    /// Those of an order, by their tags.
    pub(super) fn fields(&self, is_short: bool) -> PortFields {
        let broker = self.locate_broker.filter(|_| is_short);
        let said = [
            self.firm.map(Field::Firm),
            self.customer_type.map(Field::CustomerType),
            self.route.map(Field::Route),
            self.group.map(|group| Field::GroupId(group.into())),
            broker.map(|_| Field::SharesLocated(YesNo::YES)),
            broker.map(Field::LocateBroker),
            self.aiq_strategy.map(Field::AiqStrategy),
            self.aiq_group.map(|group| Field::AiqGroup(group.into())),
        ];
        said.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::v50::Appendage;
    use super::*;

    fn all() -> PortOptions {
        PortOptions {
            firm: Text::new("FIRM"),
            customer_type: Some(CustomerType::RETAIL),
            route: Text::new("SCAN"),
            group: Some(513),
            locate_broker: Text::new("BRKR"),
            aiq_strategy: Some(AiqStrategy(b'O')),
            aiq_group: Some(7),
        }
    }

    #[test]
    fn port_says_what_it_was_given_by_tags_and_a_locate_of_short_sales_alone() {
        let mut out = [0; 2 + PortOptions::LEN_MAX];
        assert_eq!(Appendage::emit(&all().fields(true), &mut out), Some(out.len()), "all of them have the room");
        let short = b"\x05\x02FIRM\x02\x04R\x05\x0eSCAN\x03\x18\x02\x01\x02\x19Y\x05\x1aBRKR\x02\x1dO\x03\x1e\0\x07";
        assert_eq!(&out[2..], short);
        let len = Appendage::emit(&all().fields(false), &mut out).unwrap();
        let other = b"\x05\x02FIRM\x02\x04R\x05\x0eSCAN\x03\x18\x02\x01\x02\x1dO\x03\x1e\0\x07";
        assert_eq!(&out[2..len], other);
        assert!(PortOptions::default().fields(true).is_empty());
    }
}
