// Neap in an asio::io_context that one thread runs. docs/EMBEDDING.md
//
//     auto host = neap::asio_host::start(io, reactor, [&](int result) { ... });
//     io.run();
//
// Set neap_reactor_options.host_keeps_deadline: the adapter keeps it. Callbacks given to Neap must not throw: an exception would
// unwind through C. One that does is caught here, and the host ends with NEAP_EINTERNAL.
#ifndef NEAP_ADAPTERS_ASIO_HPP
#define NEAP_ADAPTERS_ASIO_HPP

#include <asio.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <neap/reactor.h>

namespace neap {

class asio_host : public std::enable_shared_from_this<asio_host> {
public:
	const neap_budget *budget = nullptr; // of each turn
	// `ended`: once, when the reactor has STOPPED or failed. Null: out of memory or descriptors.
	static std::shared_ptr<asio_host> start(asio::io_context &io, neap_reactor *reactor, std::function<void(int)> ended) noexcept
	try {
		std::shared_ptr<asio_host> host(new asio_host(io, reactor, std::move(ended)));
		asio::post(io, [host] { host->turn(); });
		host->wait();
		return host;
	} catch (...) {
		return nullptr;
	}

	// Before the reactor is destroyed. Allowed in callbacks.
	void stop() noexcept
	try {
		stopped_ = true;
		if (descriptor_.is_open())
			descriptor_.release(); // asio lets go of the fd without closing it; its wait ends as aborted
		timer_.cancel();
	} catch (...) {
	}

	~asio_host() { stop(); }
private:
	asio_host(asio::io_context &io, neap_reactor *reactor, std::function<void(int)> ended)
		: reactor_(reactor), descriptor_(io, neap_reactor_fd(reactor)), timer_(io), ended_(std::move(ended)) {}

	void wait() // asio re-arms its edge-triggered watch with each async_wait: what is still readable is told again
	{
		descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
		                       [host = shared_from_this()](asio::error_code error) { if (!error) host->turn(), host->rearm(); });
	}
	void rearm() noexcept try { if (!stopped_) wait(); } catch (...) { end(NEAP_ENOMEM); }
	void end(int result) noexcept try { stop(); if (ended_) std::exchange(ended_, nullptr)(result); } catch (...) {}

	void turn() noexcept
	try {
		int result = stopped_ ? NEAP_ECLOSED : neap_reactor_run_once(reactor_, budget);
		if (stopped_) // before, or by a callback
			return;
		if (result < 0 || result == NEAP_RUN_STOPPED)
			return end(result);
		uint64_t deadline_ns = result == NEAP_RUN_MORE ? 0 : neap_reactor_deadline_ns(reactor_);
		timer_.cancel();
		if (deadline_ns == UINT64_MAX)
			return;
		timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns))); // CLOCK_MONOTONIC
		timer_.async_wait([host = shared_from_this()](asio::error_code error) { if (!error) host->turn(); });
	} catch (...) {
		end(NEAP_EINTERNAL);
	}

	neap_reactor *reactor_;
	asio::posix::stream_descriptor descriptor_;
	asio::steady_timer timer_;
	std::function<void(int)> ended_;
	bool stopped_ = false;
};
} // namespace neap
#endif
