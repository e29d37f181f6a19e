/* SPDX-License-Identifier: Apache-2.0 */
#include "async_close.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/observe/log.h"

/* An account's limits do not let it send so many at once. */
#define MAX_CLOSING 8192

struct closing {
	struct chore chore;
	int fd;
	struct charge charge;
};

static struct closing *closing_of(struct chore *chore)
{
	return (struct closing *)((char *)chore - offsetof(struct closing, chore));
}

static bool close_one(struct chore *chore)
{
	close(closing_of(chore)->fd);
	return true;
}

static void on_closed(struct chore *chore)
{
	struct closing *closing = closing_of(chore);

	chore->account->closing--;
	charge_release(&closing->charge);
	free(closing);
}

void async_close_fd(struct chores *chores, struct account *account, int fd, struct charge *charge)
{
	struct closing *closing = malloc(sizeof *closing);

	if (!closing) {
		close(fd);
		charge_release(charge);
		return;
	}
	*closing = (struct closing){
		.chore = { .kind = CHORE_CLOSE, .step = close_one, .on_done = on_closed },
		.fd = fd,
		.charge = *charge,
	};
	*charge = (struct charge){ 0 };
	account->closing++;
	chores_add(chores, account, &closing->chore);
}

/* After the shutdown nothing more arrives. Descriptors travel with bytes, so a socket without unread bytes
 * holds none. While the account has descriptors to close, the socket goes behind them: a connection stays
 * charged until its descriptors are closed. */
void async_close_socket(struct chores *chores, struct account *account, int fd, struct charge *charge)
{
	int unread;

	shutdown(fd, SHUT_RDWR);
	if (account->closing > 0 || ioctl(fd, SIOCINQ, &unread) < 0 || unread > 0) {
		async_close_fd(chores, account, fd, charge);
		return;
	}
	close(fd);
	charge_release(charge);
}

bool async_close_is_full(const struct account *account)
{
	return account->closing >= MAX_CLOSING;
}

void async_close_log_stuck(const struct accounts *accounts)
{
	const struct account *account;

	LIST_FOREACH(account, &accounts->list, entry) {
		const struct log_about about = account_about(account);

		if (account->closing > 0)
			log_about(LOG_LEVEL_WARNING, &about,
			          "descriptors that it sent are still being closed: %" PRIu64,
			          account->closing);
	}
}
