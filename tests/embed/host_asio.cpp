#include "tests/embed/host.h"

#include <cstdlib>
#include <memory>
#include <neap/adapters/asio.hpp>

extern "C" {
extern const char *const host_name;
extern const bool host_is_foreign;
const char *const host_name = "Asio";
const bool host_is_foreign = true;
}

namespace {
struct attachment {
	neap_reactor *reactor;
	std::shared_ptr<neap::asio_host> adapter;
};
std::unique_ptr<asio::io_context> io;
attachment attachments[HOST_REACTORS_MAX];
int running, last;
} // namespace

void host_begin(void)
{
	io = std::make_unique<asio::io_context>(1);
	running = 0;
	/* asio opens a timerfd of its own with its first timer: now, so that the test does not take it for one of ours. */
	asio::steady_timer first(*io, std::chrono::milliseconds(0));
	first.async_wait([](asio::error_code) {});
	io->run();
}

void host_end(void)
{
	for (attachment &a : attachments)
		a.adapter.reset();
	io.reset();
}

void host_attach(neap_reactor *reactor, const neap_budget *budget)
{
	attachment &a = attachments[attachments[0].adapter ? 1 : 0];
	running++;
	a.reactor = reactor;
	a.adapter = neap::asio_host::start(*io, reactor, [&a](int result) {
		last = result;
		a.adapter.reset();
		if (--running == 0)
			io->stop();
	});
	if (!a.adapter)
		std::abort();
	a.adapter->budget = budget;
}

void host_detach(neap_reactor *reactor)
{
	for (attachment &a : attachments) {
		if (!a.adapter || a.reactor != reactor)
			continue;
		a.adapter->stop();
		a.adapter.reset();
		running--;
	}
}

void host_after_ms(unsigned ms, void (*run)(void *user), void *user)
{
	auto timer = std::make_shared<asio::steady_timer>(*io, std::chrono::milliseconds(ms));
	timer->async_wait([timer, run, user](asio::error_code error) {
		if (!error)
			run(user);
	});
}

void host_break(void)
{
	io->stop();
}

int host_run(void)
{
	last = 0;
	io->restart();
	io->run();
	return last;
}
