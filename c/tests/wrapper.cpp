// wirepath.hpp: owners give back what they own, once; refusals are exceptions; bytes come from
// strings, arrays and containers, and an array of char says by which length.
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <wirepath.hpp>

#define MUST(fact)                                                                                                     \
    do {                                                                                                               \
        if (!(fact)) {                                                                                                 \
            std::cout << "line " << __LINE__ << ": not " << #fact << "; " << wp_last_error() << "\n";                  \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (false)

template <class Act> static int refusal(Act &&act)
{
    try {
        act();
    } catch (const wirepath::Error &error) {
        MUST(std::string(error.what()).size() > 5);
        return error.code();
    }
    return 0;
}

// Of an array of char, a literal too, no call may guess that it ends at its first NUL.
using wirepath::Bytes;
static_assert(!std::is_convertible<char (&)[8], Bytes>::value, "an array may be binary");
static_assert(!std::is_convertible<const char (&)[8], Bytes>::value, "a literal may be binary");
static_assert(!std::is_convertible<const char *, Bytes>::value, "a pointer says no length");
static_assert(std::is_convertible<unsigned char (&)[8], Bytes>::value, "bytes are all of an array");

int main()
{
    auto options = wirepath::options();
    options.flags = WP_TIMESTAMPS;
    options.held = 16;
    options.address = "192.0.2.1/24";
    wirepath::Stack near("memory:wrapper", options);
    options.address = "192.0.2.2/24";
    wirepath::Stack first("memory:wrapper", options), far(std::move(first));
    MUST(first.get().id == 0 && far.get().id != 0);
    MUST(refusal([] { wirepath::Stack("dpdk:eth1"); }) == WP_E_OPEN);
    MUST(refusal([&] { near.wait_fd(); }) == WP_E_UNSUPPORTED);

    const sockaddr_in here = wp_ipv4(192, 0, 2, 1, 5000), there = wp_ipv4(192, 0, 2, 2, 5000);
    auto sub = far.bind(there, 3);
    MUST(refusal([&] { far.bind(there, 4); }) == WP_E_REFUSED);
    auto flow = near.flow(here, there);
    const std::string text = "from a string";
    const std::vector<unsigned char> data = {1, 2, 3};
    std::vector<std::string> heard;
    std::vector<wirepath::Buffer> held;
    int stamped = 0;
    MUST(flow.send(Bytes::text("first")) >= 0); // waits for ARP
    while (heard.size() < 4) {
        near.poll([&](const wp_event &event) { stamped += event.type == WP_EVENT_SENT && event.token == 9; });
        far.poll([&](const wp_event &event) {
            heard.push_back(wirepath::bytes(event).str());
            held.push_back(far.hold(event));
            if (heard.size() == 1) {
                MUST(near.stamp(9) == 0 && flow.send(text) == WP_SENT);
                MUST(flow.send(data, WP_MORE) == WP_SENT && near.flush() == 0);
                MUST(near.send_to(here, there, wirepath::Bytes("literal", 3)) >= 0);
            }
        });
    }
    near.poll([&](const wp_event &event) { stamped += event.type == WP_EVENT_SENT && event.token == 9; });
    MUST(heard[1] == text && heard[2] == std::string("\1\2\3") && heard[3] == "lit" && stamped == 1);

    // Once given back, a handle is stale, and its owner has none to give back.
    const wp_buffer given_back = held[0].get();
    held.clear();
    MUST(wp_release(far.get(), given_back) == WP_E_STALE);
    wirepath::Subscription other = std::move(sub);
    MUST(!sub && other);
    {
        const wirepath::Subscription gone = std::move(other);
    }
    far.bind(there, 3); // the address is free again, and again at once
    unsigned char price[8] = {0, 0, 0, 7};
    MUST(Bytes(price).size() == 8 && Bytes(price, 4).size() == 4 && Bytes::text("ab\0c").size() == 2);
    const wp_timer timer = near.after(1000000000, 1).release(); // not cancelled with its owner
    MUST(wp_cancel(near.get(), timer) == 0);
    MUST(refusal([&] { near.info(wp_conn{5}); }) == WP_E_STALE);

    // An exception loses none of a turn's events, neither for an array nor for the next call.
    sub = far.bind(there, 4);
    for (const bool takes_array : {false, true}) {
        std::string seen;
        for (const char *one : {"1", "2", "3"})
            MUST(flow.send(Bytes::text(one), *one == '3' ? 0 : WP_MORE) == WP_SENT);
        const auto note = [&](const wp_event &event) {
            seen += wirepath::bytes(event).str();
            if (seen == "1")
                near.info(wp_conn{5}); // throws
        };
        MUST(refusal([&] { far.poll(note); }) == WP_E_STALE);
        wp_event left[1];
        while (takes_array && seen.size() < 3 && far.poll(left) > 0)
            seen += wirepath::bytes(left[0]).str();
        far.poll(note);
        MUST(seen == "123");
    }
    MUST(near.counter("worker0/frames") > 0 && near.stats().size() > 20);
    MUST(refusal([&] { near.counter("no/such"); }) == WP_E_NAME);
    MUST(near.now() >= 0 && near.time_to_next() >= 0);
#if __cplusplus >= 201703L
    MUST(std::string_view(wirepath::Bytes(text)) == text);
#endif
    std::cout << "as promised\n";
}
