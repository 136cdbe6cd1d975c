#include "apps/bench/figures.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* sequence; then the four figures */
#define QUESTION "neap-bench figures %" SCNu32
#define ANSWER_SCAN "neap-bench figures %" SCNu32 " cpu_ns %" SCNu64 " system_calls %" SCNu64 " requests %" SCNu64
#define ANSWER "neap-bench figures %" PRIu32 " cpu_ns %" PRIu64 " system_calls %" PRIu64 " requests %" PRIu64
#define PATIENCE_SECONDS 3.0

void bench_figures_here(struct app_host *host, struct bench_threads *threads, struct bench_figures *figures_p)
{
	struct neap_engine_stats stats;
	neap_engine_stats(host->engine, &stats);
	figures_p->system_calls =
		bench_host_system_calls(host) + (threads && threads->count ? bench_threads_system_calls(threads) : 0);
	figures_p->cpu_ns = (uint64_t)(app_cpu_seconds() * 1e9);
	figures_p->requests = stats.requests_served;
	figures_p->known = true;
}

/* --- target ------------------------------------------------------------------------------------------------ */

static void on_answer_sent(void *user, int error, const char *why)
{
	(void)error;
	(void)why; /* the asker sees silence and says so */
	struct bench_answer_pending *pending = user;
	pending->used = false;
}

static void on_asker_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)why;
	struct bench_answer_pending *pending = user;
	struct neap_engine *engine = pending->answers->host->engine;
	if (error || neap_notify_send(engine, segment, neap_engine_name(engine), pending->message, on_answer_sent, pending))
		pending->used = false;
}

static struct bench_answer_pending *free_pending(struct bench_answers *answers)
{
	for (size_t i = 0; i < sizeof answers->pending / sizeof answers->pending[0]; i++)
		if (!answers->pending[i].used)
			return &answers->pending[i];
	return NULL;
}

static void answer_question(struct bench_answers *answers, const struct neap_notify *notify)
{
	uint32_t sequence;
	struct bench_answer_pending *pending = free_pending(answers);
	if (!pending || sscanf(notify->message, QUESTION, &sequence) != 1)
		return;
	struct bench_figures figures;
	bench_figures_here(answers->host, answers->threads, &figures);
	snprintf(pending->message, sizeof pending->message, ANSWER, sequence, figures.cpu_ns, figures.system_calls, figures.requests);
	pending->used = true;
	pending->answers = answers;
	if (neap_segment_open(answers->host->engine, notify->name, on_asker_opened, pending))
		pending->used = false;
}

static void on_notify(void *user)
{
	struct bench_answers *answers = user;
	struct neap_notify notify;
	while (neap_notify_take(answers->host->engine, &notify) == 1)
		answer_question(answers, &notify);
}

void bench_answers_begin(struct bench_answers *answers, struct app_host *host, struct bench_threads *threads)
{
	memset(answers, 0, sizeof *answers);
	answers->host = host;
	answers->threads = threads;
	neap_notify_watch(host->engine, on_notify, answers);
}

/* --- initiator --------------------------------------------------------------------------------------------- */

static void on_answer(void *user)
{
	struct bench_questions *questions = user;
	struct neap_notify notify;
	while (neap_notify_take(questions->host->engine, &notify) == 1) {
		struct bench_figures figures = {.known = true};
		uint32_t sequence;
		if (sscanf(notify.message, ANSWER_SCAN, &sequence, &figures.cpu_ns, &figures.system_calls, &figures.requests) != 4 ||
		    sequence != questions->sequence)
			continue;
		questions->figures = figures;
		questions->answered = true;
		ev_break(questions->host->loop, EVBREAK_ALL);
	}
}

static void on_question_sent(void *user, int error, const char *why)
{
	(void)why;
	struct bench_questions *questions = user;
	if (!error)
		return;
	questions->silent = true; /* refused: no need to wait */
	questions->answered = true;
	ev_break(questions->host->loop, EVBREAK_ALL);
}

void bench_questions_begin(struct bench_questions *questions, struct app_host *host, neap_segment_id target)
{
	memset(questions, 0, sizeof *questions);
	questions->host = host;
	questions->target = target;
	neap_notify_watch(host->engine, on_answer, questions);
}

void bench_figures_ask(struct bench_questions *questions, struct bench_figures *figures_p)
{
	memset(figures_p, 0, sizeof *figures_p);
	if (questions->silent)
		return;
	char message[64];
	snprintf(message, sizeof message, "neap-bench figures %" PRIu32, ++questions->sequence);
	memset(&questions->figures, 0, sizeof questions->figures);
	questions->answered = false;
	struct neap_engine *engine = questions->host->engine;
	if (neap_notify_send(engine, questions->target, neap_engine_name(engine), message, on_question_sent, questions))
		questions->silent = true;
	else if (!app_host_wait(questions->host, &questions->answered, PATIENCE_SECONDS) && !questions->host->interrupted)
		questions->silent = true;
	*figures_p = questions->figures;
}
