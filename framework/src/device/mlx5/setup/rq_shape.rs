//! The shape of a receive ring: WQEs, buffers of each, strides.

use rdma_core_sys::verbs::StridingRequest;

/// The shape of a receive ring.
#[derive(Clone, Copy)]
pub(crate) struct RqShape {
    pub(crate) wqe_count: u32,
    /// Buffers per WQE.
    pub(crate) segments: u32,
    pub(crate) striding: Option<StridingRequest>,
}

impl RqShape {
    /// A striding ring for `frames` frames of `frame_len_max` bytes, none of which spans two WQEs;
    /// and at least two WQEs: the NIC fills the last stride of a WQE only when the next frame
    /// arrives. `None` if a WQE is smaller than a frame.
    pub(crate) fn for_frames(frames: u32, frame_len_max: usize, striding: StridingRequest) -> Option<Self> {
        let strides = frame_len_max.div_ceil(1 << striding.stride_len_log).max(1);
        let frames_of_wqe = (1 << striding.stride_count_log) / strides;
        if frames_of_wqe == 0 {
            return None;
        }
        let wqes = (frames as usize).div_ceil(frames_of_wqe).next_power_of_two().max(2);
        Some(Self { wqe_count: wqes as u32, segments: 1, striding: Some(striding) })
    }

    /// Bytes of a striding ring's buffer.
    pub(crate) fn mprq_buffer_len(self) -> usize {
        let log = self.striding.map_or(0, |striding| striding.stride_len_log + striding.stride_count_log);
        (self.wqe_count as usize) << log
    }

    /// Completions that may be pending at once: one per frame, and so at most one per stride.
    pub(crate) fn cqe_count(self) -> u32 {
        self.wqe_count << self.striding.map_or(0, |striding| striding.stride_count_log)
    }

    /// Bytes of the ring.
    pub(crate) fn len(self) -> usize {
        (self.wqe_count * self.segments * 16) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the number of WQEs for such frames, with strides of 2^`len` bytes, 2^`count` of them
    /// per WQE.
    fn check(frames: u32, frame_len_max: usize, (len, count): (u8, u8), expected: Option<u32>) {
        let striding = StridingRequest { stride_len_log: len, stride_count_log: count, two_byte_shift: false };
        let shape = RqShape::for_frames(frames, frame_len_max, striding);
        assert_eq!(shape.map(|shape| shape.wqe_count), expected, "{frames} of {frame_len_max}");
    }

    #[test]
    fn striding_ring_has_room_for_its_frames() {
        check(2048, 1518, (8, 9), Some(32));
        check(8, 1518, (8, 9), Some(2));
        // One frame per WQE: it takes a little more than half of the strides, so a second would
        // span two.
        check(64, 1100, (8, 3), Some(64));
        check(64, 2048, (8, 3), Some(64));
        check(64, 2049, (8, 3), None);
    }
}
