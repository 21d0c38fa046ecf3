//! An order that stands ready, whole with its packet header, and is patched before it is sent.

use market::Symbol;

use super::v50::{EnterOrder, Field};
use super::{Capacity, Side, TimeInForce};
use crate::soupbin::{HEADER_LEN, PacketType};

/// Room for the packet: header, order, and an appendage of some ten options.
const ROOM: usize = 128;

/// Where a field begins in the packet: after the header of SoupBinTCP and the type byte.
const fn at(offset: usize) -> usize {
    HEADER_LEN + 1 + offset
}

/// An enter order of OUCH 5.0 in a packet of SoupBinTCP. Each field is patched by one store, at a
/// place that is known when the program is compiled; nothing is encoded when the order is fired.
///
/// The packet is [`bytes`](Self::bytes), for a kernel socket. For an order that wirepath's TCP has
/// prepared, give it the bytes once, and patch there at [`USER_REF_AT`](Self::USER_REF_AT) and the
/// others. Call [`Client::sent`](crate::soupbin::Client::sent) for each order: it refuses where the
/// session is not logged in, and postpones the heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct OrderTemplate {
    packet: [u8; ROOM],
    len: usize,
}

impl OrderTemplate {
    /// Where the UserRefNum begins, 4 bytes, big endian.
    pub const USER_REF_AT: usize = at(core::mem::offset_of!(EnterOrder, user_ref));
    /// Where the side is, 1 byte.
    pub const SIDE_AT: usize = at(core::mem::offset_of!(EnterOrder, side));
    /// Where the quantity begins, 4 bytes, big endian.
    pub const QUANTITY_AT: usize = at(core::mem::offset_of!(EnterOrder, quantity));
    /// Where the symbol begins, 8 bytes.
    pub const SYMBOL_AT: usize = at(core::mem::offset_of!(EnterOrder, symbol));
    /// Where the price begins, 8 bytes, big endian.
    pub const PRICE_AT: usize = at(core::mem::offset_of!(EnterOrder, price));
    /// Where the capacity is, 1 byte.
    pub const CAPACITY_AT: usize = at(core::mem::offset_of!(EnterOrder, capacity));
    /// Where the customer's text begins, 14 bytes.
    pub const CL_ORD_ID_AT: usize = at(core::mem::offset_of!(EnterOrder, cl_ord_id));

    /// A packet with a limit order without options, as agent unless
    /// [`in_capacity`](Self::in_capacity) says otherwise; number and price are patched in.
    pub fn limit(side: Side, symbol: Symbol, quantity: u32, time_in_force: TimeInForce) -> Self {
        let order = EnterOrder { quantity: quantity.into(), ..EnterOrder::new(side, symbol, time_in_force) };
        // An order without options always has its room, so the other packet is never made.
        Self::new(&order, &[]).unwrap_or(Self { packet: [0; ROOM], len: 0 })
    }

    /// The same in another capacity.
    #[must_use]
    pub const fn in_capacity(mut self, capacity: Capacity) -> Self {
        self.packet[Self::CAPACITY_AT] = capacity.0;
        self
    }

    /// A packet with `order` and its options; `None` where they have more than 128 bytes.
    pub fn new(order: &EnterOrder, fields: &[Field<'_>]) -> Option<Self> {
        let mut packet = [0; ROOM];
        let len = order.emit(fields, &mut packet[HEADER_LEN..])?;
        let [high, low] = u16::try_from(1 + len).ok()?.to_be_bytes();
        packet[..HEADER_LEN].copy_from_slice(&[high, low, PacketType::Unsequenced.to_wire()]);
        Some(Self { packet, len: HEADER_LEN + len })
    }

    /// Puts in what differs from order to order. Three stores.
    #[inline]
    pub fn patch(&mut self, user_ref: u32, quantity: u32, price: u64) {
        self.packet[Self::USER_REF_AT..Self::USER_REF_AT + 4].copy_from_slice(&user_ref.to_be_bytes());
        self.packet[Self::QUANTITY_AT..Self::QUANTITY_AT + 4].copy_from_slice(&quantity.to_be_bytes());
        self.packet[Self::PRICE_AT..Self::PRICE_AT + 8].copy_from_slice(&price.to_be_bytes());
    }

    /// Puts in another side.
    #[inline]
    pub fn patch_side(&mut self, side: Side) {
        self.packet[Self::SIDE_AT] = side.0;
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.packet[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;
    use crate::ouch::v50::Inbound;
    use crate::soupbin::Packet;

    #[test]
    fn patched_template_is_the_order_with_the_new_fields() {
        let order = EnterOrder::read_from_bytes(&[b'N'; 44]).unwrap();
        let mut template = OrderTemplate::new(&order, &[Field::MinQuantity(5.into())]).unwrap();
        template.patch(7, 300, 1_503_400);
        template.patch_side(Side::SELL);
        let packet = Packet::parse(template.bytes()).unwrap();
        assert_eq!(Packet::len(template.bytes()), Ok(Some(template.bytes().len())));
        let expected =
            EnterOrder { user_ref: 7.into(), quantity: 300.into(), price: 1_503_400.into(), side: Side::SELL, ..order };
        let (message, appendage) = Inbound::parse(packet.payload).unwrap();
        assert_eq!(message, Inbound::EnterOrder(&expected));
        assert_eq!(appendage.fields().next(), Some(Field::MinQuantity(5.into())));
    }

    #[test]
    fn limit_order_has_its_quantity_and_awaits_number_and_price() {
        let template = OrderTemplate::limit(Side::BUY, Symbol::NONE, 100, TimeInForce::DAY);
        let mut template = template.in_capacity(Capacity::PRINCIPAL);
        template.patch(3, 200, 5);
        let other = OrderTemplate::limit(Side::BUY, Symbol::NONE, 200, TimeInForce::DAY);
        let packet = Packet::parse(template.bytes()).unwrap();
        let expected = EnterOrder {
            user_ref: 3.into(),
            quantity: 200.into(),
            price: 5.into(),
            capacity: Capacity::PRINCIPAL,
            ..EnterOrder::new(Side::BUY, Symbol::NONE, TimeInForce::DAY)
        };
        assert_eq!(Inbound::parse(packet.payload).unwrap().0, Inbound::EnterOrder(&expected));
        assert_eq!(other.bytes().len(), template.bytes().len());
    }

    #[test]
    fn places_are_those_of_the_specification_after_the_packet_header() {
        assert_eq!((OrderTemplate::USER_REF_AT, OrderTemplate::SIDE_AT, OrderTemplate::QUANTITY_AT), (4, 8, 9));
        assert_eq!((OrderTemplate::SYMBOL_AT, OrderTemplate::PRICE_AT, OrderTemplate::CL_ORD_ID_AT), (13, 21, 34));
    }
}
