// wirepath for C++11 and later: the handles of wirepath.h as owners that close themselves, and refusals
// as exceptions at set-up. Calls on the hot path return what C returns, and throw nothing.
#ifndef WIREPATH_HPP
#define WIREPATH_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L
#include <string_view>
#endif

#include "wirepath.h"

namespace wirepath {

// A refused call: the sentence as what(), and the code.
class Error : public std::runtime_error {
public:
    explicit Error(int code) : std::runtime_error(wp_last_error()), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

// Throws where a call was refused; else its result.
template <class T> T check(T result)
{
    if (result < 0)
        throw Error(static_cast<int>(result));
    return result;
}

// Bytes that are not owned: of an event, an array of unsigned char, or whatever has data() and
// size(). An array of char, and so a literal, may hold text or binary data, and no length is right
// for both: the caller says which, by Bytes::text(array) or Bytes(array, size).
class Bytes {
public:
    Bytes(const void *data, std::size_t size) noexcept : data_(static_cast<const char *>(data)), size_(size) {}
    template <std::size_t Size>
    Bytes(const unsigned char (&data)[Size]) noexcept : Bytes(static_cast<const void *>(data), Size)
    {
    }
    template <std::size_t Size> Bytes(const char (&)[Size]) = delete;
    template <class T, class = decltype(std::declval<const T &>().data()),
              class = decltype(std::declval<const T &>().size())>
    Bytes(const T &owner) noexcept
        : data_(reinterpret_cast<const char *>(owner.data())), size_(owner.size() * sizeof *owner.data())
    {
    }

    // The bytes of a text before its NUL.
    static Bytes text(const char *text) noexcept { return Bytes(text, std::strlen(text)); }

    const char *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    const char *begin() const noexcept { return data_; }
    const char *end() const noexcept { return data_ + size_; }
    std::string str() const { return std::string(data_, size_); }
#if __cplusplus >= 201703L
    operator std::string_view() const noexcept { return {data_, size_}; }
#endif

private:
    const char *data_;
    std::size_t size_;
};

// The bytes of an event: until the next poll, unless they are held.
inline Bytes bytes(const wp_event &event) noexcept
{
    return Bytes(event.data, event.len);
}

// A handle of a stack that Close gives back, on the stack's thread: on another nothing happens. Only
// a Buffer may be destroyed on any thread. It must not outlive its stack; if it does, the handle is
// stale and nothing happens.
template <class Handle, int (*Close)(wp_stack, Handle)> class Owned {
public:
    Owned() noexcept = default;
    Owned(wp_stack stack, Handle handle) noexcept : stack_(stack), handle_(handle) {}
    Owned(Owned &&other) noexcept : stack_(other.stack_), handle_(other.release()) {}
    Owned &operator=(Owned &&other) noexcept
    {
        std::swap(stack_, other.stack_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    ~Owned()
    {
        if (handle_.id != 0)
            Close(stack_, handle_);
    }

    Handle get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_.id != 0; }

    // Gives the handle away: it is not closed.
    Handle release() noexcept
    {
        const Handle handle = handle_;
        handle_ = Handle{0};
        return handle;
    }

protected:
    wp_stack stack_{0};
    Handle handle_{0};
};

using Subscription = Owned<wp_sub, wp_unsubscribe>;
using Buffer = Owned<wp_buffer, wp_release>;
using Timer = Owned<wp_timer, wp_cancel>;

// Prepared headers to one destination.
class Flow : public Owned<wp_flow, wp_udp_close> {
public:
    using Owned::Owned;
    int send(Bytes data, uint32_t flags = 0) noexcept
    {
        return wp_udp_send(stack_, handle_, data.data(), data.size(), flags);
    }
};

// A prepared segment.
class Order : public Owned<wp_order, wp_order_free> {
public:
    using Owned::Owned;
    int patch(std::size_t offset, Bytes data) noexcept
    {
        return wp_order_patch(stack_, handle_, offset, data.data(), data.size());
    }
    int fire(uint32_t flags = 0) noexcept { return wp_order_fire(stack_, handle_, flags); }
    int warm() noexcept { return wp_order_warm(stack_, handle_); }
};

// Options with `size` set.
inline wp_options options() noexcept
{
    const wp_options options = WP_OPTIONS_INIT;
    return options;
}

inline wp_tcp_options tcp_options() noexcept
{
    const wp_tcp_options options = WP_TCP_OPTIONS_INIT;
    return options;
}

inline wp_udp_options udp_options() noexcept
{
    const wp_udp_options options = WP_UDP_OPTIONS_INIT;
    return options;
}

// A worker with its port, on this thread.
class Stack {
public:
    explicit Stack(const std::string &port, const wp_options &options = wirepath::options()) : turn_(new Turn)
    {
        check(wp_open(port.c_str(), &options, &stack_));
    }
    Stack(Stack &&other) noexcept : stack_(other.stack_), turn_(std::move(other.turn_))
    {
        other.stack_ = wp_stack{0};
    }
    Stack &operator=(Stack &&other) noexcept
    {
        std::swap(stack_, other.stack_);
        std::swap(turn_, other.turn_);
        return *this;
    }
    Stack(const Stack &) = delete;
    Stack &operator=(const Stack &) = delete;
    ~Stack()
    {
        if (stack_.id != 0)
            wp_close(stack_);
    }

    wp_stack get() const noexcept { return stack_; }

    // One turn, into an array of events: as wp_poll. What an exception of the other `poll` has left
    // comes first.
    template <std::size_t Max> int poll(wp_event (&events)[Max]) noexcept
    {
        int left = 0;
        while (turn_ && turn_->next < turn_->count && left < static_cast<int>(Max))
            events[left++] = turn_->events[turn_->next++];
        return left > 0 ? left : wp_poll(stack_, events, static_cast<int>(Max));
    }

    // One turn, and `act(event)` for each event of it. False where the device has ended. If `act`
    // throws, the next call goes on with the event behind, and makes no turn.
    template <class Act> bool poll(Act &&act)
    {
        if (!turn_) // moved from
            turn_.reset(new Turn);
        if (turn_->next == turn_->count) {
            turn_->next = turn_->count = 0;
            const int count = wp_poll(stack_, turn_->events, 32);
            if (count == WP_E_ENDED)
                return false;
            turn_->count = check(count);
        }
        while (turn_->next < turn_->count)
            act(turn_->events[turn_->next++]);
        return true;
    }

    int wait_fd() const { return check(wp_wait_fd(stack_)); }
    int64_t time_to_next() { return check(wp_time_to_next(stack_)); }
    void wait(int64_t timeout_ns = -1) { check(wp_wait(stack_, timeout_ns)); }
    int flush() noexcept { return wp_flush(stack_); }
    int64_t now() const { return check(wp_now(stack_)); }
    int stamp(uint64_t token) noexcept { return wp_stamp(stack_, token); }

    Buffer hold(const wp_event &event)
    {
        return make<Buffer, wp_buffer>([&](wp_buffer *made) { return wp_hold(stack_, &event, made); });
    }

    Subscription bind(const sockaddr_in &local, uint32_t tag = 0)
    {
        return make<Subscription, wp_sub>([&](wp_sub *made) { return wp_udp_bind(stack_, &local, tag, made); });
    }

    Subscription join(const sockaddr_in &group, uint32_t tag = 0, const sockaddr_in *sources = nullptr,
                      std::size_t count = 0)
    {
        return make<Subscription, wp_sub>(
            [&](wp_sub *made) { return wp_udp_join(stack_, &group, sources, count, tag, made); });
    }

    Subscription listen(const sockaddr_in &local, uint32_t tag = 0, const wp_tcp_options *options = nullptr)
    {
        return make<Subscription, wp_sub>(
            [&](wp_sub *made) { return wp_tcp_listen(stack_, &local, options, tag, made); });
    }

    Flow flow(const sockaddr_in &local, const sockaddr_in &remote, const wp_udp_options *options = nullptr)
    {
        return make<Flow, wp_flow>(
            [&](wp_flow *made) { return wp_udp_connect(stack_, &local, &remote, options, made); });
    }

    int send_to(const sockaddr_in &local, const sockaddr_in &remote, Bytes data, uint32_t flags = 0) noexcept
    {
        return wp_udp_send_to(stack_, &local, &remote, data.data(), data.size(), flags);
    }

    // A connection has no owner: it ends by close or abort, and WP_EVENT_CLOSED says so.
    wp_conn connect(const sockaddr_in &local, const sockaddr_in &remote, uint32_t tag = 0,
                    const wp_tcp_options *options = nullptr)
    {
        wp_conn conn{0};
        check(wp_tcp_connect(stack_, &local, &remote, options, tag, &conn));
        return conn;
    }

    int64_t send(wp_conn conn, Bytes data, uint32_t flags = 0) noexcept
    {
        return wp_tcp_send(stack_, conn, data.data(), data.size(), flags);
    }
    int shutdown(wp_conn conn) noexcept { return wp_tcp_shutdown(stack_, conn); }
    int close(wp_conn conn) noexcept { return wp_tcp_close(stack_, conn); }
    int abort(wp_conn conn) noexcept { return wp_tcp_abort(stack_, conn); }
    int pause(wp_conn conn) noexcept { return wp_tcp_pause(stack_, conn); }
    int resume(wp_conn conn) noexcept { return wp_tcp_resume(stack_, conn); }

    wp_tcp_info info(wp_conn conn) const
    {
        wp_tcp_info info = WP_TCP_INFO_INIT;
        check(wp_tcp_get_info(stack_, conn, &info));
        return info;
    }

    Order prepare(wp_conn conn, Bytes data)
    {
        return make<Order, wp_order>(
            [&](wp_order *made) { return wp_order_prepare(stack_, conn, data.data(), data.size(), made); });
    }

    Timer after(uint64_t delay_ns, uint64_t token)
    {
        return make<Timer, wp_timer>([&](wp_timer *made) { return wp_after(stack_, delay_ns, token, made); });
    }

    uint64_t counter(const std::string &name) const
    {
        uint64_t value = 0;
        check(wp_counter(stack_, name.c_str(), &value));
        return value;
    }

    // All counters and gauges.
    std::vector<wp_stat> stats() const
    {
        std::vector<wp_stat> stats(static_cast<std::size_t>(check(wp_stats(stack_, nullptr, 0))));
        check(wp_stats(stack_, stats.data(), static_cast<int>(stats.size())));
        return stats;
    }

private:
    // The events of a turn, and those of them that were acted on.
    struct Turn {
        wp_event events[32];
        int next = 0, count = 0;
    };

    template <class Owner, class Handle, class Make> Owner make(Make &&act)
    {
        Handle handle{0};
        check(act(&handle));
        return Owner(stack_, handle);
    }

    wp_stack stack_{0};
    std::unique_ptr<Turn> turn_;
};

} // namespace wirepath

#endif
